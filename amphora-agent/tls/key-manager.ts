import { createPrivateKey } from 'node:crypto'
import * as z from 'zod'
import { type Item, itemsOf, type MaterialKind, type Reader } from '../../x509/material/load.js'
import { Unusable, whatIsWrong } from '../../x509/material/material.js'
import { pathOf, type RequestedReferences, readReference, type Target } from '../../x509/material/reference.js'
import { type KeyChannel, KeyChannelDown, openKeyChannel } from '../key-channel/client.js'
import type { Boot } from '../protocol/boot.js'
import type { Credential, HeldCredential } from '../protocol/key-manager/credential.js'
import { assembleAside } from './assembler.js'
import { CredentialRefused, type LentAccess, openLentAccess } from './lent-access.js'

/** PEM that HAProxy reads, and the digest of what is public in it. */
export type ReadMaterial = { pem: string; digest: string }

/** Reads TLS material from the key manager. */
export type KeyManager = {
  /** @throws MaterialUnavailable with a clause */
  read: (ref: string, kind: MaterialKind) => Promise<ReadMaterial>
  /** From now on, reads with this credential instead of the amphora's own key. */
  lend: (credential: Credential) => void
  /** The credential that it reads with, while it lasts. */
  credential: () => HeldCredential | null
  close: () => void
}

export class MaterialUnavailable extends Error {}

/** The key manager gives no answer that means something, so it did not refuse either. */
export class KeyManagerDown extends MaterialUnavailable {}

/** For one reference. */
const READ_MS = 20_000

const containerSchema = z.object({
  type: z.string(),
  secret_refs: z.array(z.object({ name: z.string().nullish(), secret_ref: z.string() })),
})

type Lent = Pick<Credential, 'scope'> & { access: LentAccess; until: number }

/** @param boot an amphora of an earlier version has no access of its own */
export function openKeyManager({ amphoraId, keyChannel }: Pick<Boot, 'amphoraId' | 'keyChannel'>): KeyManager {
  const channel =
    keyChannel === undefined
      ? null
      : openKeyChannel({
          endpoints: keyChannel.endpoints,
          certificate: keyChannel.certificate,
          subject: amphoraId,
          privateKey: createPrivateKey(keyChannel.privateKey),
        })
  /** Kept after its end: then the key channel has nothing for this amphora either. In memory only. */
  let lent: Lent | null = null

  const readerNow = (signal: AbortSignal): Reader => {
    if (lent !== null) {
      if (lent.until <= performance.now()) throw new MaterialUnavailable('the credential for the key manager has ended')
      return lentReader(lent.access, signal)
    }
    if (channel === null) throw new MaterialUnavailable('the amphora is too old to read it')
    return channelReader(channel, signal)
  }
  return {
    read: async (ref, kind) => {
      const reader = readerNow(AbortSignal.timeout(READ_MS))
      try {
        return await assembleAside(await itemOf(ref, kind).load(reader))
      } catch (error) {
        if (error instanceof KeyChannelDown || error instanceof LentAccessDown)
          throw new KeyManagerDown(clause(error.message))
        if (error instanceof CredentialRefused) {
          if (lent !== null) lent = { ...lent, until: 0 }
          throw new MaterialUnavailable(error.message)
        }
        const wrong = whatIsWrong(error)
        if (wrong === null) throw error
        throw new MaterialUnavailable(wrong)
      }
    },
    lend: credential => {
      lent = {
        scope: credential.scope,
        access: openLentAccess(credential),
        until: performance.now() + credential.seconds * 1000,
      }
    },
    credential: () => {
      const seconds = lent === null ? 0 : Math.floor((lent.until - performance.now()) / 1000)
      return lent === null || seconds <= 0 ? null : { scope: lent.scope, seconds }
    },
    close: () => channel?.close(),
  }
}

/** A revocation list's signature was checked when it was bound. */
function itemOf(ref: string, kind: MaterialKind): Item {
  const none: RequestedReferences = { certificates: [], authorities: [], revocationLists: [] }
  const requested: Record<MaterialKind, RequestedReferences> = {
    certificate: { ...none, certificates: [ref] },
    authority: { ...none, authorities: [ref] },
    'revocation list': { ...none, revocationLists: [{ ref, authority: '' }] },
  }
  const [item] = itemsOf(requested[kind])
  if (item === undefined) throw new Error('a reference is one item')
  return item
}

function channelReader(channel: KeyChannel, signal: AbortSignal): Reader {
  const get = (path: string, accept: string) =>
    channel.send({ method: 'GET', path, accept }, signal).then(answer => bytesOf(answer))
  return {
    payload: target => get(`${pathOf(target)}/payload`, 'application/octet-stream'),
    parts: async target => partsIn(await get(pathOf(target), JSON_TYPE)),
  }
}

/** The services behind a credential give no answer that means something. */
class LentAccessDown extends Error {}

/** Barbican gives a payload out as the type that it was stored with only, which its record shows. */
function lentReader(access: LentAccess, signal: AbortSignal): Reader {
  const get = async (path: string, accept: string) => {
    const answer = await access.get(path, accept, signal).catch((error: Error) => {
      if (error instanceof CredentialRefused) throw error
      const reason = signal.aborted ? `no answer within ${READ_MS / 1000} s` : error.message
      throw new LentAccessDown(`The key manager does not answer (${reason})`)
    })
    if (answer.status === 401 || answer.status >= 500)
      throw new LentAccessDown(`The key manager does not answer (status ${answer.status})`)
    return bytesOf(answer)
  }
  return {
    payload: async target => {
      const { content_types: types } = parsed(recordSchema, await get(pathOf(target), JSON_TYPE))
      return get(`${pathOf(target)}/payload`, types?.default ?? 'application/octet-stream')
    },
    parts: async target => partsIn(await get(pathOf(target), JSON_TYPE)),
  }
}

const JSON_TYPE = 'application/json'

const recordSchema = z.object({ content_types: z.object({ default: z.string().optional() }).nullish() })

function bytesOf({ status, bytes }: { status: number; bytes: Buffer }): Buffer {
  if (status === 200) return bytes
  throw new Unusable(
    status === 404 || status === 403
      ? 'it does not exist, or may not be used any more'
      : `the key manager answers ${status}`,
  )
}

function partsIn(container: Buffer): Map<string, Target> {
  const { type, secret_refs: refs } = parsed(containerSchema, container)
  if (type !== 'certificate') throw new Unusable('it is not a container of type certificate')
  return new Map(
    refs.flatMap(({ name, secret_ref }): [string, Target][] => {
      const part = readReference(secret_ref)
      return part === null ? [] : [[name ?? '', part]]
    }),
  )
}

/** @throws KeyManagerDown if it is something else, as from a proxy in front of a key manager that is away */
function parsed<T>(schema: z.ZodType<T>, json: Buffer): T {
  try {
    return schema.parse(JSON.parse(json.toString()))
  } catch {
    throw new KeyManagerDown('the key manager gives an answer without meaning')
  }
}

/** A sentence as a clause. */
const clause = (sentence: string): string => sentence.charAt(0).toLowerCase() + sentence.slice(1).replace(/\.$/, '')
