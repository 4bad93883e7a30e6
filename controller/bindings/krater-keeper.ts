import * as z from 'zod'
import {
  type ChannelAnswer,
  type ChannelRequest,
  type KeyChannel,
  KeyChannelDown,
} from '../../amphora-agent/key-channel/client.js'
import { type Keeper, KeyManagerAway } from './bindings.js'
import { foundSchema } from './found.js'

const answerSchema = z.object({ references: z.array(foundSchema) })

const dueSchema = z.object({ load_balancers: z.array(z.uuid()) })

/**
 * Krater's own key manager, over the key channel. It checks references itself, and amphorae have a key of their own.
 * @param loadBalancerUrl of a load balancer, as its consumers show it
 */
export function createKraterKeeper(channel: KeyChannel, loadBalancerUrl: (id: string) => string): Keeper {
  const send = (request: ChannelRequest): Promise<ChannelAnswer> =>
    channel.send(request).catch(error => {
      if (error instanceof KeyChannelDown) throw new KeyManagerAway(error.message)
      throw error
    })
  return {
    knowsAmphorae: true,
    bind: async (tree, references, amphorae) => {
      const { status, bytes } = await send({
        method: 'PUT',
        path: `/v1/bindings/${tree.id}`,
        body: { project_id: tree.projectId, url: loadBalancerUrl(tree.id), references, amphorae },
      })
      if (status !== 200)
        throw new KeyManagerAway(`The key manager refuses the binding: ${bytes.toString().slice(0, 200)}`)
      return answerSchema.parse(JSON.parse(bytes.toString())).references
    },
    lend: async () => null,
    release: async id => {
      const { status } = await send({ method: 'DELETE', path: `/v1/bindings/${id}` })
      if (status !== 204)
        throw new KeyManagerAway(`The key manager refuses to release a load balancer (status ${status})`)
    },
    due: async () => {
      const { bytes } = await send({ method: 'GET', path: '/v1/bindings' })
      return dueSchema.parse(JSON.parse(bytes.toString())).load_balancers
    },
  }
}
