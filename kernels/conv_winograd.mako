## Winograd's convolution, schedule cpu: filters and tiles of the input are transformed, multiplied element by element and summed
## over channels (which is a batch of matrix products), and transformed back. Vectors are of channels, so that a transform is
## arithmetic of whole vectors; the rows of an image are turned into such vectors, and back, in registers.
<%page args="name, ctype, itemsize, lanes, panel, taps, count, to_filters, to_inputs, to_outputs, further=(), statements=''"/>
<%namespace name="parts" file="conv_winograd_parts.mako"/>
<%
    vec, size = f"conv_{ctype}{lanes}", taps + count - 1
    kernel = f"__kernel __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint({ctype}{lanes}))) CONV_VECTORS({8 * itemsize * lanes})"
%>
typedef struct {  // a block of `images` from number `first` on, and of `features` of each group; strides of the transformed arrays
    long first, images, feature, features;
    long rows, cols;                       // tiles along the image
    long width;                            // of a row of tiles, in vectors
    long u_point, u_group, v_point, v_tile, m_point, m_tile, m_group;
    long scratch;                          // elements of scratch space of one work-item
} ${name}_tiles;

// U[point, g, panel, c, feature], panels of ${panel} features
${kernel}
void ${name}_filters(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *W, __global ${ctype} *U)
{
    const long panels = t.m_group / ${panel}, total = p.groups * panels * p.c;
    const long end = conv_share(total, 1, get_global_id(0) + 1, get_global_size(0));
    ${ctype} each[${taps * taps}][${lanes}] __attribute__((aligned(64)));
    ${vec} part[${size * taps}];
    for (long unit = conv_share(total, 1, get_global_id(0), get_global_size(0)), stop; unit < end; unit = stop) {
        const long first = unit % p.c, panel = unit / p.c % panels, g = unit / p.c / panels;
        stop = min(end, unit - first + p.c);
        __global const ${ctype} *w = W + s.w + g * p.w[0] + t.feature * p.w[1] + first * p.w[2];
        __global ${ctype} *u = U + g * t.u_group + (panel * p.c + first) * ${panel};
        for (long c = unit; c < stop; c++, w += p.w[2], u += ${panel})
        for (long block = 0; block < ${panel}; block += ${lanes}) {
            for (int l = 0; l < ${lanes}; l++) {
                __global const ${ctype} *from = w + min(panel * ${panel} + block + l, t.features - 1) * p.w[1];
                % for i in range(taps * taps):
                each[${i}][l] = from[${i // taps} * p.w[4] + ${i % taps} * p.w[5]];
                % endfor
            }
            for (int j = 0; j < ${taps}; j++)
                ${parts.transform(to_filters, lambda i: f"*(const {vec} *)each[{i * taps} + j]", lambda i: f"part[{i * taps} + j]")}
            __global ${ctype} *to = u + block;
            for (int i = 0; i < ${size}; i++, to += ${size} * t.u_point)
                ${parts.transform(to_filters, lambda i: f"part[i * {taps} + {i}]", lambda i: f"*(__global {vec} *)(to + {i} * t.u_point)")}
        }
    }
}

<%include file="conv_winograd_images.mako" args="name=name, ctype=ctype, lanes=lanes, count=count, vec=vec, size=size, kernel=kernel, to_inputs=to_inputs, to_outputs=to_outputs, further=further, statements=statements"/>
