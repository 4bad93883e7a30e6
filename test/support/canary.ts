import { closeSync, openSync, readdirSync, readSync, statSync } from 'node:fs'
import { join } from 'node:path'

/**
 * The payload that the key manager's tests store unless they need another. It must not appear in clear, neither
 * in PostgreSQL's files nor in the tests' record. JSON and URLs encode its characters differently.
 */
export const CANARY = 'the "canary" of the key manager’s tests, 100% /secret'

/** A secret to search for. */
export type Canary = { name: string; bytes: Buffer }

/** Names what it finds by the canary's name and its encoding. */
export type Search = (bytes: Buffer) => string[]

/** Shorter secrets would be found by chance. */
const MIN_BYTES = 8
/** Longer secrets are searched for in pieces, because lines may be broken and ends cut off. */
const PIECE_BYTES = 24
const MAX_PIECES = 12

function piecesOf(bytes: Buffer): Buffer[] {
  if (bytes.length <= 2 * PIECE_BYTES) return [bytes]
  const count = Math.min(MAX_PIECES, Math.floor(bytes.length / PIECE_BYTES))
  return Array.from({ length: count }, (_, at) => bytes.subarray(at * PIECE_BYTES, (at + 1) * PIECE_BYTES))
}

/** Base64 of bytes at any place in other bytes: the characters that do not depend on the neighbours. */
function base64Within(bytes: Buffer, offset: 0 | 1 | 2): string {
  const text = Buffer.concat([Buffer.alloc(offset), bytes])
    .toString('base64')
    .replace(/=+$/, '')
  const first = Math.ceil((offset * 8) / 6)
  const last = Math.floor(((offset + bytes.length) * 8) / 6)
  return text.slice(first, last)
}

/** Every way in which programs encode bytes. */
function writtenIn(bytes: Buffer): [way: string, written: string | Buffer][] {
  const hex = bytes.toString('hex')
  const pairs = hex.match(/../g) ?? []
  const numbers = [...bytes].map(String)
  const asBytes: [string, string | Buffer][] = [
    ['plain', bytes],
    ['hexadecimal', hex],
    ['upper hexadecimal', hex.toUpperCase()],
    ...[' ', ':'].map((gap): [string, string] => [`hexadecimal with "${gap}"`, pairs.join(gap)]),
    ...[',', ', '].map((gap): [string, string] => ['a list of numbers', numbers.join(gap)]),
    ...([0, 1, 2] as const).flatMap((offset): [string, string][] => {
      const text = base64Within(bytes, offset)
      return [
        [`base64 at ${offset}`, text],
        [`base64url at ${offset}`, text.replace(/\+/g, '-').replace(/\//g, '_')],
      ]
    }),
  ]
  const text = bytes.toString('utf8')
  return Buffer.from(text).equals(bytes) ? [...asBytes, ...textsOf(text)] : asBytes
}

function textsOf(text: string): [way: string, written: string | Buffer][] {
  const json = JSON.stringify(text).slice(1, -1)
  const url = encodeURIComponent(text)
  const wide = Buffer.from(text, 'utf16le')
  return [
    ['JSON', json],
    ['JSON in JSON', JSON.stringify(json).slice(1, -1)],
    ['JSON of ASCII', json.replace(/[^\x20-\x7e]/g, sign => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`)],
    ['a URL', url],
    ['a form', url.replace(/%20/g, '+')],
    ['a URL in lower case', url.replace(/%[0-9A-F]{2}/g, sign => sign.toLowerCase())],
    ['UTF-16', wide],
    ['UTF-16 from the other end', Buffer.from(wide).swap16()],
  ]
}

const FILTER_BITS = 16
const slotOf = (word: number): number => Math.imul(word, 0x9e3779b1) >>> (32 - FILTER_BITS)

/** One pass over the bytes, however many canaries there are. @throws Error for a canary that is too short */
export function searchFor(canaries: readonly Canary[]): Search {
  const filter = new Uint8Array(1 << FILTER_BITS)
  const byStart = new Map<number, { label: string; pattern: Buffer }[]>()
  for (const { name, bytes } of canaries) {
    if (bytes.length < MIN_BYTES) throw new Error(`The canary ${name} is too short.`)
    for (const [way, written] of piecesOf(bytes).flatMap(writtenIn)) {
      const pattern = typeof written === 'string' ? Buffer.from(written) : written
      const start = pattern.readInt32BE(0)
      filter[slotOf(start)] = 1
      byStart.set(start, [...(byStart.get(start) ?? []), { label: `${name}, ${way}`, pattern }])
    }
  }
  return bytes => {
    const found = new Set<string>()
    let word = 0
    const { length } = bytes
    for (let at = 0; at < length; at++) {
      word = (word << 8) | (bytes[at] ?? 0)
      if (filter[slotOf(word)] === 0) continue
      for (const { label, pattern } of byStart.get(word) ?? []) {
        if (at >= 3 && bytes.subarray(at - 3, at - 3 + pattern.length).equals(pattern)) found.add(label)
      }
    }
    return [...found]
  }
}

const CHUNK_BYTES = 64 * 1024
const chunk = Buffer.alloc(CHUNK_BYTES)
const empty = Buffer.alloc(CHUNK_BYTES)
/** Longer than any piece in any encoding. */
const OVERLAP_BYTES = 1024

/**
 * What is found in a file, or in all regular files below a directory, each as `path: label`. A file that is
 * deleted during the search is skipped.
 */
export function searchFiles(path: string, search: Search): string[] {
  try {
    const stat = statSync(path)
    if (stat.isDirectory()) return readdirSync(path).flatMap(name => searchFiles(join(path, name), search))
    return stat.isFile() ? searchFile(path, search).map(label => `${path}: ${label}`) : []
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

function searchFile(path: string, search: Search): string[] {
  const found = new Set<string>()
  const file = openSync(path, 'r')
  try {
    for (let from = 0; ; from += CHUNK_BYTES - OVERLAP_BYTES) {
      const length = readSync(file, chunk, 0, CHUNK_BYTES, from)
      const read = chunk.subarray(0, length)
      // Much of PostgreSQL’s files is empty.
      if (!read.equals(empty.subarray(0, length))) for (const label of search(read)) found.add(label)
      if (length < CHUNK_BYTES) return [...found]
    }
  } finally {
    closeSync(file)
  }
}
