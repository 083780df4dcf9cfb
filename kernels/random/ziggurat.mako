## Algorithm   Draws of 8 numbers inside the layers of a ziggurat: `x`; those of which `a` is not below `limits` need
##             more numbers.
## Operands    n: the numbers; `number`: C of number k. tables: see kernels/random/variates.mako. `distribution`: normal
##             or exponential. The bits above `drop` are a fraction, and those from `first` on are the layer. The tables
##             begin at `at`.
## NDRange     None: statements of a work-item.
## Workspace   None.
## Invariants  The layers are taken from memory: so it takes fewer instructions than from a vector.
## Reference   See kernels/random/variates.mako.
<%!
    ZIGGURATS = {
        "normal": {"drop": 9, "first": 0, "at": 0, "sign": True},
        "exponential": {"drop": 11, "first": 3, "at": 768, "sign": False},
    }
%>\
<%def name="layers(distribution, number)">\
<%
    drop, first, at, sign = ZIGGURATS[distribution].values()
    place = f" >> {first}" if first else ""
    layer = f"tables[{{at}} + ({number}{place} & 255UL)]"
    limits = ", ".join(layer.format(at=at, k=k) for k in range(8))
    widths = ", ".join(f"as_double({layer.format(at=at + 256, k=k)})" for k in range(8))
%>\
                    const ulong8 a = n >> ${drop}${" & 0x000fffffffffffffUL" if sign else ""};
                    const ulong8 limits = (ulong8)(${limits});
                    const double8 widths = (double8)(${widths});
                    ${"" if sign else "const "}double8 x = convert_double8(as_long8(a)) * widths;
    % if sign:
                    x = as_double8(as_ulong8(x) ^ (n << 55 & 0x8000000000000000UL));
    % endif
</%def>\
