"""Host side of each kernel: choose the variant, size the NDRange, bind the arguments."""
