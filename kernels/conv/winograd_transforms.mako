## Application of a matrix of Winograd's convolution (G, B.T or A.T) to a column of vectors.
##
## `matrix` is what routines/conv/winograd_transforms.py makes of it: its size, statements, and the results. load(i) is
## the expression of element i, store(i) the place of result i. The def reads the arguments of the template that calls
## it.
<%def name="transform(matrix, load, store)">
<% size, statements, results = matrix %>\
{
    % for i in range(size):
    const ${ctype}${lanes} x${i} = ${load(i)};
    % endfor
    % for statement in statements:
    ${statement}
    % endfor
    % for i, value in enumerate(results):
    ${store(i)} = ${value};
    % endfor
}
</%def>
