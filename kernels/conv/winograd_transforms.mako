## Application of a matrix of Winograd's convolution (G, B.T or A.T) to a column of vectors.
##
## matrix        what routines/conv/winograd_transforms.py makes of it: its size, statements, and the results
## vector        type of the elements
## load, store   element i of the column, and the place of result i; they are C with "{i}" for the number
<%def name="transform(matrix, vector, load, store)">
<% size, statements, results = matrix %>\
{
    % for i in range(size):
    const ${vector} x${i} = ${load.format(i=i)};
    % endfor
    % for statement in statements:
    ${statement}
    % endfor
    % for i, value in enumerate(results):
    ${store.format(i=i)} = ${value};
    % endfor
}
</%def>
