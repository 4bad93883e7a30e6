/** What a UDP-CONNECT probe sends, and what the answer of a member must begin with. */
export type Exchange = { payload: Buffer; answer: Buffer }

/** More does not fit into one packet on every network. */
export const MAX_EXCHANGE_BYTES = 1_024

/**
 * Reads the `url_path` of a UDP-CONNECT monitor: `/PAYLOAD?ANSWER`, each with any byte percent-encoded.
 * @returns the exchange, or in `problem` what is wrong, as a clause
 */
export function readExchange(urlPath: string): Exchange | { problem: string } {
  const [sent = '', expected = ''] = halves(urlPath.slice(1))
  const payload = decoded(sent)
  const answer = decoded(expected)
  if (payload === null || answer === null) {
    return { problem: 'has a % that two hexadecimal digits do not follow' }
  }
  if (payload.length > MAX_EXCHANGE_BYTES || answer.length > MAX_EXCHANGE_BYTES) {
    return { problem: `has a payload or an answer of more than ${MAX_EXCHANGE_BYTES} bytes` }
  }
  return { payload, answer }
}

/** An answer may contain a question mark. */
function halves(text: string): [string, string] {
  const mark = text.indexOf('?')
  return mark === -1 ? [text, ''] : [text.slice(0, mark), text.slice(mark + 1)]
}

function decoded(text: string): Buffer | null {
  if (/%(?![0-9A-Fa-f]{2})/.test(text)) return null
  const characters = text.replaceAll(/%(..)/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)))
  return Buffer.from(characters, 'latin1')
}
