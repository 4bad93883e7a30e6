import { z } from 'zod'
import { flag } from '../../options/values.js'
import { parseTransportUrl } from './transport-url.js'

const transportUrl = z.string().transform((text, context) => {
  const transport = parseTransportUrl(text)
  if (typeof transport !== 'string') return transport
  context.addIssue({ code: 'custom', message: transport })
  return z.NEVER
})

/** A name that RabbitMQ takes for an exchange, a queue or a part of a routing key. */
const name = z.string().min(1).max(200)

/** How the key manager hears of projects that an external identity service has deleted. */
export const keystoneNotifications = z
  .strictObject({
    enable: flag
      .default(false)
      .describe('Whether `krater up` starts the listener; with our own identity service it is not needed'),
    transport_url: transportUrl
      .meta({ secret: true })
      .optional()
      .describe(
        'The message bus: amqp://user:password@host:5672/virtual-host, amqps:// for TLS, or rabbit:// with several hosts',
      ),
    ca_file: z
      .string()
      .optional()
      .describe('PEM file of the authority that vouches for the bus, instead of the system’s'),
    control_exchange: name.default('keystone').describe('Topic exchange on which the identity service publishes'),
    topic: name
      .default('notifications')
      .describe(
        'Its queue is <topic>.info. Who shares a topic takes turns: take one that nobody else reads, or a pool',
      ),
    pool_name: name.optional().describe('Name of a queue of our own that gets a copy of every notification'),
    allow_requeue: flag
      .default(false)
      .describe('Whether a notification whose project could not be erased is put back and tried again'),
    thread_pool_size: z.coerce.number().int().min(1).max(100).default(10).describe('Notifications handled at once'),
    amqp_durable_queues: flag
      .default(false)
      .describe(
        'As in the identity service’s own settings; counts only for an exchange or queue that is not there yet',
      ),
    amqp_auto_delete: flag.default(false).describe('As amqp_durable_queues'),
    rabbit_quorum_queue: flag.default(false).describe('As amqp_durable_queues'),
  })
  .prefault({})

export type KeystoneNotifications = z.output<typeof keystoneNotifications>
