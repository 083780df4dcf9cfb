## Arguments of all kernels of the attention family: sizes and operands.
##
## Operands    q (N, H, L, E), k (N, Hk, S, E), v (N, Hk, S, Ev), grad (N, H, L, Ev), mask (N, H, L, S) with any
##             strides, also zero; sums and correction (N, H, L) with any strides. All is counted in elements. Results
##             are contiguous.
## Plan        batch, heads, group (query heads that share a key head), queries L, keys S, features E, values Ev;
##             query i attends to keys up to i + offset (causal kernels); scale of the scores;
##             threshold: hashes below it are dropped; kept: factor of probabilities that are not;
##             workspace_size: elements of a work-item's workspace (schedule cpu).
## attention_call: offset of each array, which may change from call to call.
<%page args="structs"/>\
% for struct in structs:
${struct.c_typedef()}
% endfor
