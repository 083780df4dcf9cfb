## Algorithm   Draws of which each has a stream of its own: the element's. `draw` is the expression of z, and `finish`
##             that of the result. Schedule cpu: the first numbers of 8 elements are made together. With `fast` they
##             are also drawn and finished together; of an element that needs more numbers, z is drawn again.
## Operands    Parameters x0, x1, ...: numbers or, where `varying`, arrays of the result's shape. `names`: their names
##             in the expressions; `first` is that of the first one. out[size]; bad: set where the parameters are not
##             `proper`.
## NDRange     (work-items). cpu: each takes a contiguous range of the elements. simt: elements as far apart as there
##             are work-items.
## Workspace   One philox_stream in private memory.
## Invariants  Element i depends on the key, i and its parameters only, not on the number of work-items.
## Reference   See kernels/random/philox.mako and kernels/random/variates.mako.
<%page args="name, result, draw, kind, finish, names, first, varying, proper, schedule, fast"/>\
<%namespace name="parts" file="/random/finish.mako"/>\
<%namespace name="ziggurat" file="/random/ziggurat.mako"/>\
<%
    values = "_value" if fast else ""
    pairs = enumerate(varying)
    forms = [f"__global const double *x{k}_values" if v else f"const double x{k}{values}" for k, v in pairs]
    parameters = "".join(f", {form}" for form in forms)
    form_of = {letter: (first if not number else "{x}").format(x=f"x{k}") for number, (letter, k) in enumerate(names)}
    constants = [letter for letter, k in names if not varying[k]]
%>\
<%def name="letters(type, constant)">\
    % for letter, form in form_of.items():
    % if (letter in constants) == constant:
        const ${type} ${letter} = ${form};
    % endif
    % endfor
</%def>\
<%def name="check()">\
    % if proper:
        if (!all(${proper})) *bad = 1;
    % endif
</%def>\
<%include file="/common/partition.mako"/>\
__kernel ${"__attribute__((reqd_work_group_size(1, 1, 1)))" if schedule == "cpu" else ""}
void ${name}(const uint key_low, const uint key_high, const long size, __global const ulong *tables,
             __global ${result} *out, __global int *bad${parameters})
{
    #pragma OPENCL FP_CONTRACT OFF
    const long item = get_global_id(0), items = get_global_size(0);
    const uint2 key = (uint2)(key_low, key_high);
    philox_stream stream, *r = &stream;
    r->key = key;
    r->tables = tables;
% if fast:
    const double8 one = 1.0, zero = 0.0;
    % for k, v in enumerate(varying):
    % if not v:
    const double8 x${k} = x${k}_value;
    % endif
    % endfor
${letters("double8", True)}\
    % if not any(varying):
${check()}\
    % endif
    const long end = partition_begin(size, 1, item + 1, items);
    for (long i = partition_begin(size, 1, item, items); i < end; i += 8) {
        const long left = end - i;
        ulong8 n, second;
        philox_first_blocks(key, (ulong)i + (ulong8)(0, 1, 2, 3, 4, 5, 6, 7), &n, &second);
    % for k, v in enumerate(varying):
    % if v:
${parts.load_lanes(f"x{k}", 8, "i", "left")}\
    % endif
    % endfor
${letters("double8", False)}\
    % if any(varying):
${check()}\
    % endif
    % if fast == "uniform":
        const double8 z = convert_double8(as_long8(n >> 11)) * (1.0 / 9007199254740992.0);
    % else:
        ulong number[16] __attribute__((aligned(64)));
        *(ulong8 *)number = n;
        double8 z;
        long8 needs_more;
        {
${ziggurat.layers(fast, "number[{k}]")}\
            z = x;
            needs_more = a >= limits;
        }
        if (any(needs_more)) {
            double drawn[8] __attribute__((aligned(64)));
            long again[8] __attribute__((aligned(64)));
            *(double8 *)drawn = z;
            *(long8 *)again = needs_more;
            *(ulong8 *)(number + 8) = second;
            for (int l = 0; l < min(8L, left); ++l) {
                if (!again[l]) continue;
                philox_continue(r, i + l, number[l], number[l + 8]);
                drawn[l] = ${draw};
            }
            z = *(double8 *)drawn;
        }
    % endif
${parts.store(result, finish, 8, "i", "left")}\
    }
% else:
    const double one = 1.0, zero = 0.0;
    % if schedule == "cpu":
    const long end = partition_begin(size, 1, item + 1, items);
    ulong number[16] __attribute__((aligned(64)));
    const long begin = partition_begin(size, 1, item, items);
    for (long i = begin; i < end; ++i) {
        const int lane = (int)(i - begin) & 7;
        if (!lane) {
            ulong8 n, second;
            philox_first_blocks(key, (ulong)i + (ulong8)(0, 1, 2, 3, 4, 5, 6, 7), &n, &second);
            *(ulong8 *)number = n;
            *(ulong8 *)(number + 8) = second;
        }
    % else:
    for (long i = item; i < size; i += items) {
    % endif
    % for k, v in enumerate(varying):
        % if v:
        const double x${k} = x${k}_values[i];
        % endif
    % endfor
${letters("double", True)}\
${letters("double", False)}\
    % if proper:
        if (!(${proper})) {
            *bad = 1;
            continue;
        }
    % endif
    % if schedule == "cpu":
        philox_continue(r, i, number[lane], number[lane + 8]);
    % else:
        philox_start(r, i);
    % endif
        const ${kind} z = ${draw};
        out[i] = (${result})(${finish});
    }
% endif
}
