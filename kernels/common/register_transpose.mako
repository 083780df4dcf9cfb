## Transpose of a square of lanes x lanes elements in registers. `load` is row l, `store` the place of column l; they
## are C with "{l}" for the number. Elements are first exchanged within blocks of 16 bytes, then whole blocks: each
## step is one instruction of x86 for a vector. Clang keeps the steps of its built-in function. Of vectors that are
## written with their elements it makes one long sequence of insertions.
<%!
SIZES = {"char": 1, "short": 2, "int": 4, "float": 4, "long": 8, "double": 8}


def shuffle_steps(lanes, block):
    """Return index lists of shuffles of two vectors, the steps (result, number of a list, operands) and the results."""
    low = [b + n for b in range(0, lanes, block) for k in range(block // 2) for n in (k, lanes + k)]
    even = [b + k for b in range(0, 2 * lanes, 2 * block) for k in range(block)]
    lists = [low, [n + block // 2 for n in low], even, [n + block for n in even]]
    names, steps = [f"r{l}" for l in range(lanes)], []

    def both(first, a, b):
        results = [f"t{len(steps) + side}" for side in (0, 1)]
        steps.extend((result, first + side, a, b) for side, result in enumerate(results))
        return results

    for begin in range(0, lanes, block):
        for _ in range(block.bit_length() - 1):
            half = begin + block // 2
            pairs = zip(names[begin:half], names[half : begin + block], strict=True)
            names[begin : begin + block] = [name for a, b in pairs for name in both(0, a, b)]
    distance = block
    while distance < lanes:
        for i in range(lanes):
            if not i & distance:
                names[i], names[i + distance] = both(2, names[i], names[i + distance])
        distance *= 2
    return lists, steps, names
%>\
<%def name="transpose(ctype, lanes, load, store)">
<%
    lists, steps, results = shuffle_steps(lanes, min(lanes, 16 // SIZES[ctype.removeprefix("u")]))
    vector = f"{ctype}{lanes}"
    item = lambda n: f"(a).s{n:x}" if n < lanes else f"(b).s{n - lanes:x}"
%>
{
    % for l in range(lanes):
    const ${vector} r${l} = ${load.format(l=l)};
    % endfor
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
    % for number, indices in enumerate(lists):
#define shuffle${number}_${vector}(a, b) __builtin_shufflevector(a, b, ${", ".join(map(str, indices))})
    % endfor
#endif
#endif
#ifndef shuffle0_${vector}
    % for number, indices in enumerate(lists):
#define shuffle${number}_${vector}(a, b) (${vector})(${", ".join(map(item, indices))})
    % endfor
#endif
    % for result, number, a, b in steps:
    const ${vector} ${result} = shuffle${number}_${vector}(${a}, ${b});
    % endfor
    % for l in range(lanes):
    ${store.format(l=l)} = ${results[l]};
    % endfor
}
</%def>
