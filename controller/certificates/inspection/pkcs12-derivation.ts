import { hash } from 'node:crypto'

export type Pkcs12Derivation = {
  digest: { algorithm: string; digestLength: number; blockLength: number }
  /** Null is not the same as an empty one. */
  passphrase: string | null
  salt: Buffer
  /** What the key is for: 1 to encrypt, 2 an initialisation vector, 3 a MAC. */
  id: number
  iterations: number
  bytes: number
}

/** The key of RFC 7292, appendix B.2, by OpenSSL's hashes: several times as fast as node-forge's own. Pure. */
export function derivePkcs12Key({ digest, passphrase, salt, id, iterations, bytes }: Pkcs12Derivation): Buffer {
  const { algorithm, digestLength, blockLength } = digest
  const text = passphrase === null ? Buffer.alloc(0) : Buffer.from(`${passphrase}\0`, 'utf16le').swap16()
  const blocks = [...blocksOf(salt, blockLength), ...blocksOf(text, blockLength)]
  const derived: Buffer[] = []
  for (let length = 0; length < bytes; length += digestLength) {
    let result: Buffer = Buffer.concat([Buffer.alloc(blockLength, id), ...blocks])
    for (let iteration = 0; iteration < iterations; iteration++) result = hash(algorithm, result, 'buffer')
    derived.push(result)
    const addend = Buffer.alloc(blockLength, result)
    for (const block of blocks) addOneAnd(addend, block)
  }
  return Buffer.concat(derived).subarray(0, bytes)
}

/** Repeated until they fill whole blocks. */
function blocksOf(bytes: Buffer, blockLength: number): Buffer[] {
  const count = Math.ceil(bytes.length / blockLength)
  const whole = Buffer.alloc(count * blockLength, bytes.length === 0 ? 0 : bytes)
  return Array.from({ length: count }, (_, at) => whole.subarray(at * blockLength, (at + 1) * blockLength))
}

/** Adds a number and one to a block, modulo its size. */
function addOneAnd(addend: Buffer, block: Buffer): void {
  let carry = 1
  for (let at = block.length - 1; at >= 0; at--) {
    const sum = (block[at] ?? 0) + (addend[at] ?? 0) + carry
    block[at] = sum & 0xff
    carry = sum >> 8
  }
}
