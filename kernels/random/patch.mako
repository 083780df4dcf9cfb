## Algorithm   Set single draws to values that the host computed.
## Operands    places: for each value the chunk, the draw's number in it and its position, which is not used.
## NDRange     (work-items): one for each value; those beyond `count` do nothing.
## Workspace   out: `capacity` places for each chunk, as kernels/random/stream.mako writes them.
## Invariants  No two values have the same place.
## Reference   None.
<%page args="name, kind"/>\
__kernel void ${name}(__global ${kind} *out, const long capacity, const long count, __global const long *places,
                      __global const ${kind} *values)
{
    const long k = get_global_id(0);
    if (k < count) out[places[3 * k] * capacity + places[3 * k + 1]] = values[k];
}
