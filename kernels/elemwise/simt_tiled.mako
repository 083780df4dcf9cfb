## Algorithm   A function of each element, for GPUs, where inputs are contiguous along another dimension than the
##             outputs. The `transposed` inputs (by number) pass through local memory: neighbouring work-items read
##             neighbours along the last dimension but one, and take from the tile what is along the last one. All loads
##             of a work-item are in flight together, those of the other inputs too unless the function is long.
## Operands    As in kernels/elemwise/cpu.mako; the last two dimensions are those of the tiles.
## Tiling      TILE x TILE elements; TILE + 1 elements from row to row, so that a column is in different banks.
## NDRange     Work-groups of TILE x ROWS_PER_STEP work-items; each takes every so many tiles.
## Invariants  Barriers are uniform: all work-items of a group take the same tiles. Past the edges the last row or
##             column is read again, and not written.
<%page args="name, plan, offsets, inputs, by_value, outputs, statements, ndim, index, plan_in_buffer, transposed,
             is_long"/>\
<%namespace name="common" file="/elemwise/simt_common.mako"/>\
<%!
from pytensor_cl.codegen.dtypes import ctype

TILE, ROWS_PER_STEP = 32, 8
%>\
<%
arrays = [f"i{k}" for k, value in enumerate(by_value) if not value] + [f"o{k}" for k in range(len(outputs))]
direct = [k for k, value in enumerate(by_value) if not value and k not in transposed]
steps = range(0, TILE, ROWS_PER_STEP)
unsigned = "u" + index
%>\
<%def name="place(array, row, col)" buffered="True" filter="trim">
<% a = arrays.index(array) %>\
at_${array} + (${row}) * p.stride[${a}][${ndim - 2}] + (${col}) * p.stride[${a}][${ndim - 1}]
</%def>
${plan.c_typedef(f"{name}_plan")}
${offsets.c_typedef(f"{name}_offsets")}

__kernel __attribute__((reqd_work_group_size(${TILE}, ${ROWS_PER_STEP}, 1)))
void ${name}(
    ${common.parameters()})
{
    ${common.begin(arrays)}
    % for k in transposed:
    __local ${ctype(inputs[k])} tile_i${k}[${TILE}][${TILE + 1}];  // one more: a column is in different banks
    % endfor
    const int x = get_local_id(0);
    const int y = get_local_id(1);
    const ${index} rows = p.shape[${ndim - 2}];
    const ${index} columns = p.shape[${ndim - 1}];
    const ${unsigned} tiles_across = (columns + ${TILE - 1}) / ${TILE};
    const ${unsigned} tiles_down = (rows + ${TILE - 1}) / ${TILE};
    const ${unsigned} tiles = p.tiles;
    for (${unsigned} tile = get_group_id(0); tile < tiles; tile += get_num_groups(0)) {
        ${unsigned} rest = tile / tiles_across;
        const ${index} column = (tile - rest * tiles_across) * ${TILE};
        % if ndim > 2:
        const ${index} row = rest % tiles_down * ${TILE};
        rest /= tiles_down;
        % else:
        const ${index} row = rest * ${TILE};
        % endif
        ${common.outer_offsets(arrays, ndim - 2)}
        const ${index} turned_row = min(row + x, rows - 1);
        % for k in transposed:
        % for q in steps:
        const ${ctype(inputs[k])} from_i${k}_${q} =
            b_i${k}[${place(f"i{k}", "turned_row", f"min(column + y + {q}, columns - 1)")}];
        % endfor
        % endfor
        % if not is_long:
        const ${index} own_column = min(column + x, columns - 1);
        % for k in direct:
        % for q in steps:
        const ${ctype(inputs[k])} i${k}_${q} =
            b_i${k}[${place(f"i{k}", f"min(row + y + {q}, rows - 1)", "own_column")}];
        % endfor
        % endfor
        % endif
        % for k in transposed:
        % for q in steps:
        tile_i${k}[y + ${q}][x] = from_i${k}_${q};
        % endfor
        % endfor
        barrier(CLK_LOCAL_MEM_FENCE);
        % if is_long:
        for (int q = y; q < ${TILE}; q += ${ROWS_PER_STEP}) {
            ${element("q", None)}
        }
        % else:
        % for q in steps:
        {
            ${element(f"y + {q}", q)}
        }
        % endfor
        % endif
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
<%def name="element(q, number)">
            if (row + ${q} < rows && column + x < columns) {
                % for k, dtype in enumerate(inputs):
                % if k in transposed:
                const ${ctype(dtype)} i${k} = tile_i${k}[x][${q}];
                % elif k in direct:
                const ${ctype(dtype)} i${k} =
                    ${(f"i{k}_{number}" if number is not None
                        else f"b_i{k}[{place(f'i{k}', f'row + {q}', 'column + x')}]")};
                % endif
                % endfor
                % for k, dtype in enumerate(outputs):
                ${ctype(dtype)} o${k};
                % endfor
                {
                    ${statements}
                }
                % for k in range(len(outputs)):
                b_o${k}[${place(f"o{k}", f"row + {q}", "column + x")}] = o${k};
                % endfor
            }
</%def>\
