## Dropout by position: a hash of the seed and of the position in (N, H, L, S) decides. `pytensor_cl/nn/attention.py`
## draws the same in graphs without these kernels.
##
## Algorithm   Words of 32 bits, mixed by the finaliser of MurmurHash3 (Appleby): batch index, head and query give two
##             words of a row, which are mixed with the key's index.
<%page args="type"/>\
static inline ${type} attention_mix_${type}(${type} word)
{
    word = (word ^ (word >> 16)) * 0x85EBCA6Bu;
    word = (word ^ (word >> 13)) * 0xC2B2AE35u;
    return word ^ (word >> 16);
}

// The two words of a row; `row` is the query's index, `head` the head's number in all of the batch.
static inline void attention_row_${type}(
    uint head, ${type} row, __global const long *seed, ${type} *low, ${type} *high)
{
    const ${type} first = attention_mix_${type}((${type})(head ^ (uint)seed[0]));
    *low = attention_mix_${type}(first + row * 0x9E3779B9u);
    *high = attention_mix_${type}(*low ^ (uint)seed[1]);
}

static inline ${type} attention_hash_${type}(${type} low, ${type} high, ${type} key)
{
    return attention_mix_${type}(attention_mix_${type}(key ^ low) ^ high);
}
