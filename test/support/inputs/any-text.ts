import fc from 'fast-check'

const FIRST_SURROGATE = 0xd800
const SURROGATES = 0x800
const LAST_CODE_POINT = 0x10ffff

/** Any Unicode character: all code points except surrogates. */
const character = fc.nat(LAST_CODE_POINT - SURROGATES).map(
  number => String.fromCodePoint(number < FIRST_SURROGATE ? number : number + SURROGATES),
  text => {
    const number = typeof text === 'string' && [...text].length === 1 ? text.codePointAt(0) : undefined
    if (number === undefined) throw new TypeError('not one character')
    return number < FIRST_SURROGATE ? number : number - SURROGATES
  },
)

/**
 * Text of any characters, with the distribution of `fc.string({ unit: 'binary' })`, which first builds a table
 * of a million characters and so takes longer than most unit tests.
 * @param lengths in characters
 */
export const anyText = (lengths: { minLength?: number; maxLength?: number } = {}): fc.Arbitrary<string> =>
  fc.string({ unit: character, ...lengths })
