## Winograd's convolution, schedule cpu, for filters of `taps` x `taps` and tiles of `count` x `count` output pixels.
##
## Algorithm: with the matrices G, B.T and A.T, a tile of y is A.T [(G w G.T) * (B.T x B)] A, element by element,
##     summed over channels. That is a product of matrices for each of size x size points, size = taps + count - 1:
##         U[point, g, panel, c, feature] = G w G.T           <name>_filters
##         V[point, tile, channel]        = B.T x B           <name>_inputs  (winograd_images.mako)
##         M[point, tile, feature]        = V @ U             the routine's batched product, or <name>_fused
##         y                              = A.T M A           <name>_outputs (winograd_images.mako)
## Operands: x, w and y with any strides; plan.mako. <name>_tiles: a block of images and of features of each group;
##     strides of U, V and M:
##         first, images      images from number `first` on
##         feature, features  features of each group from number `feature` on
##         rows, cols         tiles of an image, down and across
##         width              output pixels of a row of tiles, in whole vectors
##         depth              channels whose filters <name>_fused transforms at a time
## Tiling      Vectors are of channels or features, so that a transform is arithmetic of whole vectors; rows of an image
##             are transposed into such vectors, and back, in registers. U has panels of `panel` features.
## NDRange     <name>_filters: a partition of groups, panels and channels.
## Workspace   For each work-item workspace_size elements: rows of one transform.
## Reference   Lavin and Gray 2016; routines/conv/winograd_transforms.py.
<%page args="name, ctype, itemsize, lanes, panel, micro, mr, taps, count, filter_matrix, input_matrix, output_matrix,
             tiles, further=(), offsets=None, statements=''"/>
<%namespace name="winograd" file="/conv/winograd_transforms.mako"/>
<%namespace name="registers" file="/common/register_transpose.mako"/>
<%
    vector, vec, size = f"{ctype}{lanes}", f"conv_{ctype}{lanes}", taps + count - 1
    attributes = f"__attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint({ctype}{lanes})))"
    function = f"static NOINLINE MIN_VECTOR_WIDTH({8 * itemsize * lanes})"
    kernel = f"__kernel {attributes} MIN_VECTOR_WIDTH({8 * itemsize * lanes})"
%>
${tiles.c_typedef(f"{name}_tiles")}

// each[c, tap, feature] of ${lanes} features from w on, of which there are `count`.
// `channels` is the number of channels: ${lanes}, which are contiguous, or one.
static void ${name}_load_taps(const conv_plan *p, __global const ${ctype} *w, long count, long channels,
                              ${ctype} each[][${lanes}])
{
    if (channels == ${lanes}) {
        for (int k = 0; k < ${taps * taps * lanes}; k += ${lanes})
            ${registers.transpose(ctype, lanes, f"*(__global const {vec} *)(w + min({{l}}L, count - 1) * p->w.m + k)",
                                  f"*({vec} *)each[k + {{l}}]")}
        return;
    }
    // Compilers would gather these, which takes longer than one by one.
    __global const volatile ${ctype} *from = w;
    for (int l = 0; l < ${lanes}; from += ++l < count ? p->w.m : 0) {
        % for i in range(taps * taps):
        each[${i}][l] = from[${i // taps} * p->w.h + ${i % taps} * p->w.w];
        % endfor
    }
}

// U[point, c, feature] of one panel, of which there are `features`, and of `channels` channels from w on.
${function} void ${name}_transform_filters(const conv_plan *p, __global const ${ctype} *w, long features, long channels,
                                      __global ${ctype} *u, long u_point)
{
    ${ctype} each[${taps * taps * lanes}][${lanes}] __attribute__((aligned(64)));
    ${vec} part[${size * taps}];
    const int is_contiguous = p->w.w == 1 && p->w.h == ${taps} && p->w.c == ${taps * taps};
    for (long c = 0, step; c < channels; c += step) {
        step = is_contiguous && channels - c >= ${lanes} ? ${lanes} : 1;
        for (long block = 0; block < ${panel}; block += ${lanes}) {
            const long at = min(block, features - 1);  // beyond the last feature, anything will do
            ${name}_load_taps(p, w + at * p->w.m + c * p->w.c, features - at, step, each);
            for (long i = 0; i < step; i++) {
                for (int j = 0; j < ${taps}; j++)
                    ${winograd.transform(filter_matrix, vector,
                                         f"*(const {vec} *)each[i * {taps * taps} + {{i}} * {taps} + j]",
                                         f"part[{{i}} * {taps} + j]")}
                __global ${ctype} *to = u + (c + i) * ${panel} + block;
                for (int j = 0; j < ${size}; j++, to += ${size} * u_point)
                    ${winograd.transform(filter_matrix, vector, f"part[j * {taps} + {{i}}]",
                                         f"*(__global {vec} *)(to + {{i}} * u_point)")}
            }
        }
    }
}

${kernel}
void ${name}_filters(conv_plan p, conv_call s, ${name}_tiles t, __global const ${ctype} *W, __global ${ctype} *U)
{
    const long panels = t.m_group / ${panel}, total = p.groups * panels * p.c;
    const long unit_begin = partition_begin(total, 1, get_global_id(0), get_global_size(0));
    const long unit_end = partition_begin(total, 1, get_global_id(0) + 1, get_global_size(0));
    for (long unit = unit_begin, next; unit < unit_end; unit = next) {
        const long c = unit % p.c, panel = unit / p.c % panels, g = unit / p.c / panels, feature = panel * ${panel};
        next = min(unit_end, unit - c + p.c);
        if (feature < t.features) {
            __global const ${ctype} *const w = W + s.w + g * p.w.g + (t.feature + feature) * p.w.m + c * p.w.c;
            __global ${ctype} *const u = U + g * t.u_group + (panel * p.c + c) * ${panel};
            ${name}_transform_filters(&p, w, min(${panel}L, t.features - feature), next - unit, u, t.u_point);
        }
    }
}

<%include file="/conv/winograd_images.mako"
          args="name=name, ctype=ctype, lanes=lanes, count=count, vec=vec, size=size, kernel=kernel, function=function,
                input_matrix=input_matrix, output_matrix=output_matrix, further=further, offsets=offsets,
                statements=statements"/>
<%include file="/conv/winograd_fused.mako"
          args="name=name, ctype=ctype, itemsize=itemsize, lanes=lanes, panel=panel, micro=micro, mr=mr, size=size,
                kernel=kernel, function=function, further=further, offsets=offsets, statements=statements"/>
