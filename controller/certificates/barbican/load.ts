import type { RequestedReferences } from '../certificate-source.js'
import type { Material } from '../inspection/material.js'
import { BadTarget } from './key-manager-away.js'
import type { Reading } from './reading.js'
import { readReference, type Target } from './reference.js'

/** One thing to inspect, for one reference. */
export type Item = {
  ref: string
  /** @throws BadTarget, KeyManagerAway, IdentityAway */
  load: (reading: Reading) => Promise<Material>
}

/** What a request needs inspected, each once. */
export function itemsOf({ certificates, authorities, revocationLists }: RequestedReferences): readonly Item[] {
  const authorityBytes = createShared()
  return [
    ...distinct(certificates).map(ref => ({ ref, load: (reading: Reading) => loadCertificate(reading, ref) })),
    ...distinct(authorities).map(ref => ({
      ref,
      load: async (reading: Reading): Promise<Material> => ({
        kind: 'authority',
        authority: Uint8Array.from(await authorityBytes(reading, ref)),
      }),
    })),
    ...distinct(revocationLists.map(({ ref, authority }) => JSON.stringify([ref, authority]))).map(pair => {
      const [ref = '', authority = ''] = JSON.parse(pair) as string[]
      return {
        ref,
        load: async (reading: Reading): Promise<Material> => {
          const list = await reading.payload(secretOf(ref))
          // An authority that is not good is told of by its own reference.
          const bytes = await authorityBytes(reading, authority).catch(error => {
            if (error instanceof BadTarget) return null
            throw error
          })
          return { kind: 'revocation list', list, authority: bytes === null ? null : Uint8Array.from(bytes) }
        },
      }
    }),
  ]
}

/** Payloads that several items need, each read once. */
function createShared(): (reading: Reading, ref: string) => Promise<Buffer> {
  const read = new Map<string, Promise<Buffer>>()
  return async (reading, ref) => {
    const target = secretOf(ref)
    const reads = read.get(target.id) ?? reading.payload(target)
    read.set(target.id, reads)
    return reads
  }
}

async function loadCertificate(reading: Reading, ref: string): Promise<Material> {
  const target = targetOf(ref)
  if (target.kind === 'secrets') return { kind: 'bundle', bundle: await reading.payload(target) }
  const parts = await reading.parts(target)
  const required = (name: string): Promise<Buffer> => {
    const part = parts.get(name)
    if (part === undefined) throw new BadTarget(`the container has no ${name}`)
    return reading.payload(part)
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

function targetOf(ref: string): Target {
  const target = readReference(ref)
  if (target === null) throw new BadTarget('it is no reference to a secret or a container of the key manager')
  return target
}

function secretOf(ref: string): Target {
  const target = targetOf(ref)
  if (target.kind !== 'secrets') throw new BadTarget('it must refer to a secret')
  return target
}

const distinct = (refs: readonly string[]): string[] => [...new Set(refs)]
