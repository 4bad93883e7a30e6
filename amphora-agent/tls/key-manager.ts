import { createPrivateKey } from 'node:crypto'
import { z } from 'zod'
import { whatIsWrong } from '../../x509/material/inspect.js'
import { type Item, itemsOf, type MaterialKind, type Reader } from '../../x509/material/load.js'
import { Unusable } from '../../x509/material/material.js'
import { pathOf, type RequestedReferences, readReference, type Target } from '../../x509/material/reference.js'
import { type KeyChannel, KeyChannelDown, openKeyChannel } from '../key-channel/client.js'
import type { Boot } from '../protocol/boot.js'
import { assembleAside } from './assembler.js'

/** PEM that HAProxy reads, and the digest of what is public in it. */
export type ReadMaterial = { pem: string; digest: string }

/** Reads TLS material from the key manager. */
export type KeyManager = {
  /** @throws MaterialUnavailable with a clause */
  read: (ref: string, kind: MaterialKind) => Promise<ReadMaterial>
  close: () => void
}

export class MaterialUnavailable extends Error {}

/** For one reference. */
const READ_MS = 20_000

const containerSchema = z.object({
  type: z.string(),
  secret_refs: z.array(z.object({ name: z.string().nullish(), secret_ref: z.string() })),
})

/** @param boot an amphora of an earlier version has no access */
export function openKeyManager({ amphoraId, keyChannel }: Pick<Boot, 'amphoraId' | 'keyChannel'>): KeyManager {
  if (keyChannel === undefined) {
    const read = async () => {
      throw new MaterialUnavailable('the amphora is too old to read it')
    }
    return { read, close: () => undefined }
  }
  const { endpoints, certificate, privateKey } = keyChannel
  const channel = openKeyChannel({
    endpoints,
    certificate,
    subject: amphoraId,
    privateKey: createPrivateKey(privateKey),
  })
  return {
    read: async (ref, kind) => {
      const reader = readerOf(channel, AbortSignal.timeout(READ_MS))
      try {
        return await assembleAside(await itemOf(ref, kind).load(reader))
      } catch (error) {
        if (error instanceof KeyChannelDown) throw new MaterialUnavailable(clause(error.message))
        const wrong = whatIsWrong(error)
        if (wrong === null) throw error
        throw new MaterialUnavailable(wrong)
      }
    },
    close: channel.close,
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

function readerOf(channel: KeyChannel, signal: AbortSignal): Reader {
  const get = async (path: string, accept: string): Promise<Buffer> => {
    const { status, bytes } = await channel.send({ method: 'GET', path, accept }, signal)
    if (status === 200) return bytes
    throw new Unusable(
      status === 404 ? 'it does not exist, or may not be used any more' : `the key manager answers ${status}`,
    )
  }
  return {
    payload: target => get(`${pathOf(target)}/payload`, 'application/octet-stream'),
    parts: async target => {
      const { type, secret_refs: refs } = containerSchema.parse(
        JSON.parse((await get(pathOf(target), 'application/json')).toString()),
      )
      if (type !== 'certificate') throw new Unusable('it is not a container of type certificate')
      return new Map(
        refs.flatMap(({ name, secret_ref }): [string, Target][] => {
          const part = readReference(secret_ref)
          return part === null ? [] : [[name ?? '', part]]
        }),
      )
    },
  }
}

/** A sentence as a clause. */
const clause = (sentence: string): string => sentence.charAt(0).toLowerCase() + sentence.slice(1).replace(/\.$/, '')
