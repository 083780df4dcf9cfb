## Set single draws.
<%page args="name, kind"/>\
__kernel void ${name}(__global ${kind} *out, const long capacity, const long count, __global const long *places, __global const ${kind} *values)
{
    const long k = get_global_id(0);
    if (k < count) out[places[3 * k] * capacity + places[3 * k + 1]] = values[k];
}
