import type { Material } from '../../../x509/material/material.js'
import type { RequestedReferences } from '../certificate-source.js'
import { UnusableReference } from './errors.js'
import type { Reader } from './reader.js'
import { readReference, type Target } from './reference.js'

/** One reference to inspect. */
export type Item = {
  ref: string
  /** @throws UnusableReference, KeyManagerUnavailable, IdentityUnavailable */
  load: (reader: Reader) => Promise<Material>
}

/** The distinct references of a request. */
export function itemsToInspect({ certificates, authorities, revocationLists }: RequestedReferences): readonly Item[] {
  const authorityBytes = createPayloadCache()
  return [
    ...distinct(certificates).map(ref => ({ ref, load: (reader: Reader) => loadCertificate(reader, ref) })),
    ...distinct(authorities).map(ref => ({
      ref,
      load: async (reader: Reader): Promise<Material> => ({
        kind: 'authority',
        authority: Uint8Array.from(await authorityBytes(reader, ref)),
      }),
    })),
    ...distinct(revocationLists.map(({ ref, authority }) => JSON.stringify([ref, authority]))).map(pair => {
      const [ref = '', authority = ''] = JSON.parse(pair) as string[]
      return {
        ref,
        load: async (reader: Reader): Promise<Material> => {
          const list = await reader.payload(parseSecretTarget(ref))
          // The authority's own item reports what is wrong with it.
          const bytes = await authorityBytes(reader, authority).catch(error => {
            if (error instanceof UnusableReference) return null
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
    if (part === undefined) throw new UnusableReference(`the container has no ${name}`)
    return reader.payload(part)
  }
  const optional = (name: string): Promise<Buffer | null> => (parts.has(name) ? required(name) : Promise.resolve(null))
  return {
    kind: 'certificate',
    certificate: await required('certificate'),
    privateKey: await required('private_key'),
    intermediates: await optional('intermediates'),
    passphrase: await optional('private_key_passphrase'),
  }
}

function parseTarget(ref: string): Target {
  const target = readReference(ref)
  if (target === null) throw new UnusableReference('it does not refer to a secret or container of the key manager')
  return target
}

function parseSecretTarget(ref: string): Target {
  const target = parseTarget(ref)
  if (target.kind !== 'secrets') throw new UnusableReference('it must refer to a secret')
  return target
}

const distinct = (refs: readonly string[]): string[] => [...new Set(refs)]
