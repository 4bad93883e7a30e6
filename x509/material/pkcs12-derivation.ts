import { hash } from 'node:crypto'

export type Pkcs12Derivation = {
  digest: { algorithm: string; digestLength: number; blockLength: number }
  /** Null differs from an empty one. */
  passphrase: string | null
  salt: Buffer
  /** Purpose: 1 encryption, 2 initialisation vector, 3 MAC. */
  id: number
  iterations: number
  bytes: number
}

/** Derives a key by RFC 7292, appendix B.2, with OpenSSL's hashes: several times as fast as node-forge. Pure. */
export function derivePkcs12Key({ digest, passphrase, salt, id, iterations, bytes }: Pkcs12Derivation): Buffer {
  const { algorithm, digestLength, blockLength } = digest
  const text = passphrase === null ? Buffer.alloc(0) : Buffer.from(`${passphrase}\0`, 'utf16le').swap16()
  const blocks = [...toBlocks(salt, blockLength), ...toBlocks(text, blockLength)]
  const derived: Buffer[] = []
  for (let length = 0; length < bytes; length += digestLength) {
    let result: Buffer = Buffer.concat([Buffer.alloc(blockLength, id), ...blocks])
    for (let iteration = 0; iteration < iterations; iteration++) result = hash(algorithm, result, 'buffer')
    derived.push(result)
    const addend = Buffer.alloc(blockLength, result)
    for (const block of blocks) addPlusOne(addend, block)
  }
  return Buffer.concat(derived).subarray(0, bytes)
}

/** Repeats the bytes to fill whole blocks. */
function toBlocks(bytes: Buffer, blockLength: number): Buffer[] {
  const count = Math.ceil(bytes.length / blockLength)
  const whole = Buffer.alloc(count * blockLength, bytes.length === 0 ? 0 : bytes)
  return Array.from({ length: count }, (_, at) => whole.subarray(at * blockLength, (at + 1) * blockLength))
}

/** Adds `addend + 1` to a block, modulo its size. */
function addPlusOne(addend: Buffer, block: Buffer): void {
  let carry = 1
  for (let at = block.length - 1; at >= 0; at--) {
    const sum = (block[at] ?? 0) + (addend[at] ?? 0) + carry
    block[at] = sum & 0xff
    carry = sum >> 8
  }
}
