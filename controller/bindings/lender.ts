import { createHash } from 'node:crypto'
import type { Credential } from '../../amphora-agent/protocol/key-manager/credential.js'
import { pathOf, readReference, type Target } from '../../x509/material/reference.js'
import type { ApplicationCredential, Credentials } from '../certificates/barbican/credentials.js'

/** Keystone ends a credential by its own clock, which may be some minutes away from ours: never more than an hour. */
const LIFE_SECONDS = 55 * 60
/** One with less left is replaced. Load balancers are looked at more often than that. */
export const RENEW_SECONDS = 30 * 60

/** What a credential must be able to read, as a name. Pure. */
export const scopeOf = (refs: readonly string[]): string =>
  createHash('sha256')
    .update(JSON.stringify(targetsOf(refs).map(pathOf).sort()))
    .digest('hex')
    .slice(0, 32)

/** What references name, each once. Pure. */
export function targetsOf(refs: readonly string[]): Target[] {
  const targets = refs.flatMap(ref => readReference(ref) ?? [])
  return [...new Map(targets.map(target => [pathOf(target), target])).values()]
}

export type LenderOptions = {
  credentials: Credentials
  /** The secrets of a container. Throws KeyManagerUnavailable, IdentityUnavailable, Unusable */
  parts: (container: Target) => Promise<readonly Target[]>
  /** How agents reach the two services. */
  services: Pick<Credential, 'gateway' | 'identity' | 'keyManager'>
}

/** Credentials of load balancers for their amphorae. They are in this process's memory only. */
export type Lender = {
  /**
   * The load balancer's credential for what it refers to: the one that it has, unless that ends soon or may read other
   * things.
   */
  lend: (loadBalancerId: string, refs: readonly string[]) => Promise<Credential>
  /** Ends all credentials of a load balancer. */
  end: (loadBalancerId: string) => Promise<void>
  /** Removes those that have expired: Keystone keeps them. */
  sweep: () => Promise<void>
}

type Lent = ApplicationCredential & { scope: string; until: number }

export function createLender({ credentials, parts, services }: LenderOptions): Lender {
  const lent = new Map<string, Lent>()
  /** Rules match the whole path, with what precedes /v1 in the key manager's URL. */
  const prefix = new URL(services.keyManager.url).pathname.replace(/\/+$/, '')

  const create = async (id: string, refs: readonly string[]): Promise<Lent> => {
    const paths = new Set<string>()
    const addSecret = (secret: Target) => paths.add(pathOf(secret)).add(`${pathOf(secret)}/payload`)
    for (const target of targetsOf(refs)) {
      if (target.kind === 'secrets') addSecret(target)
      else {
        paths.add(pathOf(target))
        for (const secret of await parts(target)) addSecret(secret)
      }
    }
    const until = performance.now() + LIFE_SECONDS * 1000
    const created = await credentials.create(
      id,
      [...paths].map(path => `${prefix}${path}`),
      LIFE_SECONDS,
    )
    return { ...created, scope: scopeOf(refs), until }
  }
  return {
    lend: async (id, refs) => {
      const standing = await credentials.list(id)
      const before = lent.get(id)
      const isGood =
        before?.scope === scopeOf(refs) &&
        before.until - performance.now() > RENEW_SECONDS * 1000 &&
        standing.some(one => one.id === before.id)
      const now = before !== undefined && isGood ? before : await create(id, refs)
      // What an earlier one could read besides is over, also if another process lent it.
      for (const one of standing) if (one.id !== now.id) await credentials.end(one)
      lent.set(id, now)
      const seconds = Math.floor((now.until - performance.now()) / 1000)
      return { scope: now.scope, id: now.id, secret: now.secret, seconds, ...services }
    },
    end: async id => {
      lent.delete(id)
      for (const credential of await credentials.list(id)) await credentials.end(credential)
    },
    sweep: async () => {
      for (const credential of await credentials.list()) if (credential.isExpired) await credentials.end(credential)
    },
  }
}
