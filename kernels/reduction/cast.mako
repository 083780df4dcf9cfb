## Expressions of the reduction kernels: casts, and products of complex numbers.
<%!
    from pytensor_cl.codegen.dtypes import vector_type
%>
## An expression of dtype `source` as one of dtype `target`.
<%def name="cast(value, source, target, n)" buffered="True" filter="trim">
% if source == target:
${value}
% elif source == "float16":
${cast(f"widen_half{n}({value})", "float32", target, n)}
% elif target == "float16":
narrow_half${n}(${cast(value, source, "float32", n)})
% elif target == "bool":
(convert_${vector_type("bool", n)}((${value}) != 0) & (uchar)1)
% else:
convert_${vector_type(target, n)}(${value})
% endif
</%def>

## A part of a product of complex numbers; where one is to be left out if it is zero, that of the other.
<%def name="part(combine, side, product)" buffered="True" filter="trim">
% if combine == "product":
${product}
% else:
(a.even == 0) & (a.odd == 0) ? b.${side} : ((b.even == 0) & (b.odd == 0) ? a.${side} : ${product})
% endif
</%def>
