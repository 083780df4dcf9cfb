## Winograd's convolution, schedule cpu: filters and tiles of the input are transformed, multiplied element by element and summed
## over channels (which is a batch of matrix products), and transformed back. Vectors are of channels, so that a transform is
## arithmetic of whole vectors; the rows of an image are turned into such vectors, and back, in registers.
<%page args="name, ctype, itemsize, lanes, panel, tiles, rows, taps, count, to_filters, to_inputs, to_outputs, further=(), statements=''"/>
<%namespace name="parts" file="/conv/winograd_transforms.mako"/>
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
    long depth;                            // channels whose filters ${name}_fused transforms at a time
} ${name}_tiles;

// each[c, tap, feature] of ${lanes} features from w on, of which `count` there are, and of `channels` channels: ${lanes}, which lie
// together, or one.
static void ${name}_taps(const conv_plan *p, __global const ${ctype} *w, long count, long channels, ${ctype} each[][${lanes}])
{
    if (channels == ${lanes}) {
        for (int k = 0; k < ${taps * taps * lanes}; k += ${lanes})
            ${parts.turn(lambda l: f"*(__global const {vec} *)(w + min({l}L, count - 1) * p->w[1] + k)", lambda l: f"*({vec} *)each[k + {l}]")}
        return;
    }
    // Compilers would gather these, which takes longer than one by one.
    __global const volatile ${ctype} *from = w;
    for (int l = 0; l < ${lanes}; from += ++l < count ? p->w[1] : 0) {
        % for i in range(taps * taps):
        each[${i}][l] = from[${i // taps} * p->w[4] + ${i % taps} * p->w[5]];
        % endfor
    }
}

// U[point, c, feature] of one panel, of which `features` there are, and of `channels` channels from w on.
static void ${name}_transform_filters(const conv_plan *p, __global const ${ctype} *w, long features, long channels, __global ${ctype} *u,
                                      long u_point)
{
    ${ctype} each[${taps * taps * lanes}][${lanes}] __attribute__((aligned(64)));
    ${vec} part[${size * taps}];
    const int together = p->w[5] == 1 && p->w[4] == ${taps} && p->w[2] == ${taps * taps};
    for (long c = 0, step; c < channels; c += step) {
        step = together && channels - c >= ${lanes} ? ${lanes} : 1;
        for (long block = 0; block < ${panel}; block += ${lanes}) {
            const long at = min(block, features - 1);  // beyond the last feature, anything will do
            ${name}_taps(p, w + at * p->w[1] + c * p->w[2], features - at, step, each);
            for (long i = 0; i < step; i++) {
                for (int j = 0; j < ${taps}; j++)
                    ${parts.transform(to_filters, lambda i: f"*(const {vec} *)each[i * {taps * taps} + {i * taps} + j]", lambda i: f"part[{i * taps} + j]")}
                __global ${ctype} *to = u + (c + i) * ${panel} + block;
                for (int j = 0; j < ${size}; j++, to += ${size} * u_point)
                    ${parts.transform(to_filters, lambda i: f"part[j * {taps} + {i}]", lambda i: f"*(__global {vec} *)(to + {i} * u_point)")}
            }
        }
    }
}

// U[point, g, panel, c, feature], panels of ${panel} features
${kernel}
void ${name}_filters(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *W, __global ${ctype} *U)
{
    const long panels = t.m_group / ${panel}, total = p.groups * panels * p.c;
    const long end = conv_share(total, 1, get_global_id(0) + 1, get_global_size(0));
    for (long unit = conv_share(total, 1, get_global_id(0), get_global_size(0)), stop; unit < end; unit = stop) {
        const long first = unit % p.c, panel = unit / p.c % panels, g = unit / p.c / panels, feature = panel * ${panel};
        stop = min(end, unit - first + p.c);
        if (feature < t.features)
            ${name}_transform_filters(&p, W + s.w + g * p.w[0] + (t.feature + feature) * p.w[1] + first * p.w[2],
                min(${panel}L, t.features - feature), stop - unit, U + g * t.u_group + (panel * p.c + first) * ${panel}, t.u_point);
    }
}

<%include file="/conv/winograd_images.mako" args="name=name, ctype=ctype, lanes=lanes, count=count, vec=vec, size=size, kernel=kernel, to_inputs=to_inputs, to_outputs=to_outputs, further=further, statements=statements"/>
<%include file="/conv/winograd_fused.mako" args="name=name, ctype=ctype, itemsize=itemsize, lanes=lanes, panel=panel, tiles=tiles, rows=rows, size=size, kernel=kernel, further=further, statements=statements"/>
