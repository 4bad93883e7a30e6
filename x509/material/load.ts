import { type Material, Unusable } from './material.js'
import { type RequestedReferences, readReference, type Target } from './reference.js'

/** Reads stored bytes. Each call may throw Unusable, and errors of its own that say nothing of the reference. */
export type Reader = {
  /** The payload of a secret. */
  payload: (target: Target) => Promise<Buffer>
  /** The secrets of a certificate container by name. */
  parts: (target: Target) => Promise<ReadonlyMap<string, Target>>
}

/** What a reference must lead to: a certificate with its key, CA certificates, or revocation lists. */
export type MaterialKind = 'certificate' | 'authority' | 'revocation list'

/** One reference to read. */
export type Item = {
  ref: string
  kind: MaterialKind
  /** @throws Unusable, and what the reader throws */
  load: (reader: Reader) => Promise<Material>
}

/** The distinct references of a request. */
export function itemsOf({ certificates, authorities, revocationLists }: RequestedReferences): readonly Item[] {
  const authorityBytes = createPayloadCache()
  return [
    ...distinct(certificates).map(ref => ({
      ref,
      kind: 'certificate' as const,
      load: (reader: Reader) => loadCertificate(reader, ref),
    })),
    ...distinct(authorities).map(ref => ({
      ref,
      kind: 'authority' as const,
      load: async (reader: Reader): Promise<Material> => ({
        kind: 'authority',
        authority: Uint8Array.from(await authorityBytes(reader, ref)),
      }),
    })),
    ...distinct(revocationLists.map(({ ref, authority }) => JSON.stringify([ref, authority]))).map(pair => {
      const [ref = '', authority = ''] = JSON.parse(pair) as string[]
      return {
        ref,
        kind: 'revocation list' as const,
        load: async (reader: Reader): Promise<Material> => {
          const list = await reader.payload(parseSecretTarget(ref))
          // The authority's own item reports what is wrong with it.
          const bytes = await authorityBytes(reader, authority).catch(error => {
            if (error instanceof Unusable) return null
            throw error
          })
          return { kind: 'revocation list', list, authority: bytes === null ? null : Uint8Array.from(bytes) }
        },
      }
    }),
  ]
}

/** Reads each payload once, also when several items need it. */
function createPayloadCache(): (reader: Reader, ref: string) => Promise<Buffer> {
  const read = new Map<string, Promise<Buffer>>()
  return async (reader, ref) => {
    const target = parseSecretTarget(ref)
    const reads = read.get(target.id) ?? reader.payload(target)
    read.set(target.id, reads)
    return reads
  }
}

async function loadCertificate(reader: Reader, ref: string): Promise<Material> {
  const target = parseTarget(ref)
  if (target.kind === 'secrets') return { kind: 'bundle', bundle: await reader.payload(target) }
  const parts = await reader.parts(target)
  const required = (name: string): Promise<Buffer> => {
    const part = parts.get(name)
    if (part === undefined) throw new Unusable(`the container has no ${name}`)
    return reader.payload(part)
  }
  const optional = async (name: string): Promise<Buffer | null> => (parts.has(name) ? required(name) : null)
  const [certificate, privateKey, intermediates, passphrase] = await Promise.all([
    required('certificate'),
    required('private_key'),
    optional('intermediates'),
    optional('private_key_passphrase'),
  ])
  return { kind: 'certificate', certificate, privateKey, intermediates, passphrase }
}

function parseTarget(ref: string): Target {
  const target = readReference(ref)
  if (target === null) throw new Unusable('it does not refer to a secret or container of the key manager')
  return target
}

function parseSecretTarget(ref: string): Target {
  const target = parseTarget(ref)
  if (target.kind !== 'secrets') throw new Unusable('it must refer to a secret')
  return target
}

const distinct = (refs: readonly string[]): string[] => [...new Set(refs)]
