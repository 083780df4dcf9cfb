## The bytes of a C type that a user defined.
<%page args="name, kind"/>\
__kernel void ${name}(__global long *bytes)
{
    *bytes = sizeof(${kind});
}
