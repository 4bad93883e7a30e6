import { pathOf, type Target } from '../../../x509/material/reference.js'
import { sendAsServiceUser } from './as-service-user.js'
import { KeyManagerUnavailable } from './errors.js'
import type { KeyManagerClient } from './key-manager-client.js'
import type { ServiceUser } from './service-user.js'

/** A load balancer as a consumer. Barbican shows it to whoever may see the secret or container. */
export type Consumer = { id: string; url: string }

/** Registers load balancers as consumers of what they use, as our service user. */
export type Consumers = {
  /** Safe to repeat. @throws KeyManagerUnavailable, IdentityUnavailable */
  register: (target: Target, consumer: Consumer) => Promise<void>
  /** No error if it is not one. @throws KeyManagerUnavailable, IdentityUnavailable */
  release: (target: Target, consumer: Consumer) => Promise<void>
}

export function createConsumers(client: KeyManagerClient, serviceUser: ServiceUser, seconds: number): Consumers {
  const send = async (method: 'POST' | 'DELETE', target: Target, { id, url }: Consumer): Promise<number> => {
    const body =
      target.kind === 'secrets'
        ? { service: 'load-balancer', resource_type: 'loadbalancers', resource_id: id }
        : { name: 'load-balancer', URL: url }
    const request = { method, path: `${pathOf(target)}/consumers`, body }
    const { status } = await sendAsServiceUser(client, serviceUser, request, AbortSignal.timeout(seconds * 1000))
    return status
  }
  return {
    register: async (target, consumer) => {
      const status = await send('POST', target, consumer)
      if (status !== 200) throw new KeyManagerUnavailable(`${pathOf(target)} takes no consumer (status ${status})`)
    },
    // Gone, or not shared with our service user any more: nothing is left that it could release.
    release: async (target, consumer) => {
      await send('DELETE', target, consumer)
    },
  }
}
