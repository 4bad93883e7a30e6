import * as z from 'zod'
import { flag } from '../../options/values.js'
import { parseTransportUrl } from './transport-url.js'

const transportUrl = z.string().transform((text, context) => {
  const transport = parseTransportUrl(text)
  if (typeof transport !== 'string') return transport
  context.addIssue({ code: 'custom', message: transport })
  return z.NEVER
})

/** A name that RabbitMQ accepts for an exchange, a queue or a part of a routing key. */
const name = z.string().min(1).max(200)

/** How the key manager learns of projects that an external identity service deleted. */
export const keystoneNotifications = z
  .strictObject({
    enable: flag
      .default(false)
      .describe('Whether `krater up` starts the listener; not needed with our own identity service'),
    transport_url: transportUrl
      .meta({ secret: true })
      .optional()
      .describe(
        'URL of the message bus: amqp://user:password@host:5672/virtual-host, amqps:// for TLS, or rabbit:// with several hosts',
      ),
    ca_file: z.string().optional().describe('PEM file with the CA of the bus; default: the system’s CAs'),
    control_exchange: name.default('keystone').describe('Topic exchange to which the identity service publishes'),
    topic: name
      .default('notifications')
      .describe(
        'Topic; its queue is <topic>.info. Consumers of a queue share its messages: choose a topic that nobody else reads, or a pool',
      ),
    pool_name: name.optional().describe('Name of a separate queue that gets a copy of every notification'),
    allow_requeue: flag
      .default(false)
      .describe('Whether to requeue and retry a notification when its project could not be erased'),
    thread_pool_size: z.coerce.number().int().min(1).max(100).default(10).describe('Notifications handled at once'),
    amqp_durable_queues: flag
      .default(false)
      .describe('As in the identity service’s settings; used only to create a missing exchange or queue'),
    amqp_auto_delete: flag.default(false).describe('As amqp_durable_queues'),
    rabbit_quorum_queue: flag.default(false).describe('As amqp_durable_queues'),
  })
  .prefault({})

export type KeystoneNotifications = z.output<typeof keystoneNotifications>
