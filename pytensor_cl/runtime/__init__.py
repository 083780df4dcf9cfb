"""OpenCL devices, contexts, queues, memory and programs. Nothing in here imports PyTensor."""
