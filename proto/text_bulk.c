// SPDX-License-Identifier: Apache-2.0
#include "proto/text_bulk.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// --- words: any processor ---

// The two characters of each value of 12 bits.
#define PAIR(a, b)   \
	{            \
		a, b \
	}
#define PAIRS8(a, b, c, d, e, f, g, h, i) \
	PAIR(a, b), PAIR(a, c), PAIR(a, d), PAIR(a, e), PAIR(a, f), PAIR(a, g), PAIR(a, h), PAIR(a, i)
#define PAIRS(a)                                                                                                      \
	PAIRS8(a, 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H'), PAIRS8(a, 'I', 'J', 'K', 'L', 'M', 'N', 'O', 'P'),         \
		PAIRS8(a, 'Q', 'R', 'S', 'T', 'U', 'V', 'W', 'X'), PAIRS8(a, 'Y', 'Z', 'a', 'b', 'c', 'd', 'e', 'f'), \
		PAIRS8(a, 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n'), PAIRS8(a, 'o', 'p', 'q', 'r', 's', 't', 'u', 'v'), \
		PAIRS8(a, 'w', 'x', 'y', 'z', '0', '1', '2', '3'), PAIRS8(a, '4', '5', '6', '7', '8', '9', '+', '/')
#define PAIRS64(a, b, c, d, e, f, g, h) PAIRS(a), PAIRS(b), PAIRS(c), PAIRS(d), PAIRS(e), PAIRS(f), PAIRS(g), PAIRS(h)
static const char pairs[4096][2] = {
	PAIRS64('A', 'B', 'C', 'D', 'E', 'F', 'G', 'H'),
	PAIRS64('I', 'J', 'K', 'L', 'M', 'N', 'O', 'P'),
	PAIRS64('Q', 'R', 'S', 'T', 'U', 'V', 'W', 'X'),
	PAIRS64('Y', 'Z', 'a', 'b', 'c', 'd', 'e', 'f'),
	PAIRS64('g', 'h', 'i', 'j', 'k', 'l', 'm', 'n'),
	PAIRS64('o', 'p', 'q', 'r', 's', 't', 'u', 'v'),
	PAIRS64('w', 'x', 'y', 'z', '0', '1', '2', '3'),
	PAIRS64('4', '5', '6', '7', '8', '9', '+', '/'),
};

static size_t encode_words(char *dst, const unsigned char *src, size_t n)
{
	size_t groups = n / 3;
	for (size_t i = 0; i < groups; i++, src += 3, dst += 4) {
		unsigned v = (unsigned)src[0] << 16 | (unsigned)src[1] << 8 | src[2];
		memcpy(dst, pairs[v >> 12], 2);
		memcpy(dst + 2, pairs[v & 0xfff], 2);
	}
	return groups;
}

// What a character stands for; above 63: nothing.
static const uint8_t values[256] = {
	[0 ... '+' - 1] = 64,
	['+'] = 62,
	['+' + 1 ... '/' - 1] = 64,
	['/'] = 63,
	['0'] = 52,
	53,
	54,
	55,
	56,
	57,
	58,
	59,
	60,
	61,
	['9' + 1 ... 'A' - 1] = 64,
	['A'] = 0,
	1,
	2,
	3,
	4,
	5,
	6,
	7,
	8,
	9,
	10,
	11,
	12,
	13,
	14,
	15,
	16,
	17,
	18,
	19,
	20,
	21,
	22,
	23,
	24,
	25,
	['Z' + 1 ... 'a' - 1] = 64,
	['a'] = 26,
	27,
	28,
	29,
	30,
	31,
	32,
	33,
	34,
	35,
	36,
	37,
	38,
	39,
	40,
	41,
	42,
	43,
	44,
	45,
	46,
	47,
	48,
	49,
	50,
	51,
	['z' + 1 ... 255] = 64,
};

static size_t decode_words(unsigned char *dst, const char *text, size_t n)
{
	const unsigned char *src = (const unsigned char *)text;
	size_t groups = n / 4;
	for (size_t i = 0; i < groups; i++, src += 4, dst += 3) {
		unsigned a = values[src[0]], b = values[src[1]], c = values[src[2]], d = values[src[3]];
		if ((a | b | c | d) & 64)
			return i;
		unsigned v = a << 18 | b << 12 | c << 6 | d;
		dst[0] = (unsigned char)(v >> 16);
		dst[1] = (unsigned char)(v >> 8);
		dst[2] = (unsigned char)v;
	}
	return groups;
}

// --- AVX2: 24 bytes or 32 characters a step, after W. Mula and D. Lemire, "Faster Base64 Encoding and Decoding Using AVX2
// Instructions", ACM TWEB 12 (2018) ---

#ifdef __x86_64__
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

// Both halves alike.
AVX2 static inline __m256i twice(__m128i half)
{
	return _mm256_broadcastsi128_si256(half);
}

AVX2 static inline __m256i encode_step(__m256i in)
{
	// Three bytes abc become the words ba and cb, of which multiplications bring six bits each to the bottom of a byte.
	in = _mm256_shuffle_epi8(in, twice(_mm_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10)));
	__m256i high =
		_mm256_mulhi_epu16(_mm256_and_si256(in, _mm256_set1_epi32(0x0fc0fc00)), _mm256_set1_epi32(0x04000040));
	__m256i low =
		_mm256_mullo_epi16(_mm256_and_si256(in, _mm256_set1_epi32(0x003f03f0)), _mm256_set1_epi32(0x01000010));
	__m256i six = _mm256_or_si256(high, low);
	// A-Z is 13, a-z 0, 0-9 1 to 10, + 11, / 12: and each of these has its distance from the character.
	__m256i kind = _mm256_or_si256(_mm256_subs_epu8(six, _mm256_set1_epi8(51)),
		_mm256_and_si256(_mm256_cmpgt_epi8(_mm256_set1_epi8(26), six), _mm256_set1_epi8(13)));
	__m256i distance = twice(_mm_setr_epi8('a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
		'0' - 52, '0' - 52, '0' - 52, '0' - 52, '+' - 62, '/' - 63, 'A', 0, 0));
	return _mm256_add_epi8(six, _mm256_shuffle_epi8(distance, kind));
}

AVX2 static size_t encode_avx2(char *dst, const unsigned char *src, size_t n)
{
	size_t groups = 0;
	for (; n >= 28; n -= 24, src += 24, dst += 32, groups += 8) { // the second half reads four bytes on
		__m256i in = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)src)),
			_mm_loadu_si128((const __m128i *)(src + 12)), 1);
		_mm256_storeu_si256((__m256i *)dst, encode_step(in));
	}
	return groups;
}

// The characters of IN as their values, *BAD not zero if one is not of the alphabet.
AVX2 static inline __m256i decode_step(__m256i in, int *good)
{
	const __m256i low_ok = twice(_mm_setr_epi8(
		0x15, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x11, 0x13, 0x1a, 0x1b, 0x1b, 0x1b, 0x1a));
	const __m256i high_ok = twice(_mm_setr_epi8(
		0x10, 0x10, 0x01, 0x02, 0x04, 0x08, 0x04, 0x08, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x10));
	const __m256i distance = twice(_mm_setr_epi8(
		0, 63 - '/', 62 - '+', 52 - '0', 0 - 'A', 0 - 'A', 26 - 'a', 26 - 'a', 0, 0, 0, 0, 0, 0, 0, 0));
	const __m256i slash =
		_mm256_set1_epi8('/'); // 0x2f, which is also a mask: a shuffle looks at four bits and the sign
	__m256i high = _mm256_and_si256(_mm256_srli_epi32(in, 4), slash);
	__m256i low = _mm256_and_si256(in, slash);
	*good = _mm256_testz_si256(_mm256_shuffle_epi8(low_ok, low), _mm256_shuffle_epi8(high_ok, high));
	__m256i kind = _mm256_add_epi8(_mm256_cmpeq_epi8(in, slash), high);
	return _mm256_add_epi8(in, _mm256_shuffle_epi8(distance, kind));
}

AVX2 static size_t decode_avx2(unsigned char *dst, const char *src, size_t n)
{
	size_t groups = 0;
	// Eight bytes more than the result are written each time: so the last of it is left to others.
	for (; n >= 48; n -= 32, src += 32, dst += 24, groups += 8) {
		int good;
		__m256i six = decode_step(_mm256_loadu_si256((const __m256i *)src), &good);
		if (!good)
			break;
		__m256i twelve = _mm256_maddubs_epi16(six, _mm256_set1_epi32(0x01400140));
		__m256i all = _mm256_madd_epi16(twelve, _mm256_set1_epi32(0x00011000));
		all = _mm256_shuffle_epi8(
			all, twice(_mm_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1)));
		all = _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
		_mm256_storeu_si256((__m256i *)dst, all);
	}
	return groups;
}
#else
static bool has_avx2(void)
{
	return false;
}
static size_t encode_avx2(char *dst, const unsigned char *src, size_t n)
{
	(void)dst, (void)src, (void)n;
	return 0;
}
static size_t decode_avx2(unsigned char *dst, const char *src, size_t n)
{
	(void)dst, (void)src, (void)n;
	return 0;
}
#endif

size_t text_bulk_encode(enum text_bulk how, char *dst, const unsigned char *src, size_t n)
{
	size_t done = how != TEXT_BULK_WORDS && has_avx2() ? encode_avx2(dst, src, n) : 0;
	if (how != TEXT_BULK_AVX2)
		done += encode_words(dst + done * 4, src + done * 3, n - done * 3);
	return done;
}

size_t text_bulk_decode(enum text_bulk how, unsigned char *dst, const char *src, size_t n)
{
	size_t done = how != TEXT_BULK_WORDS && has_avx2() ? decode_avx2(dst, src, n) : 0;
	if (how != TEXT_BULK_AVX2)
		done += decode_words(dst + done * 3, src + done * 4, n - done * 4);
	return done;
}
