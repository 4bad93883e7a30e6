import type { Connection } from 'rabbitmq-client'
import type { KeystoneNotifications } from './options.js'

/**
 * Makes sure that notifications reach a queue. Uses an existing exchange or queue as it is: the bus refuses to
 * declare it with flags that differ. Creates a missing one as oslo.messaging would with the same settings, so that
 * the identity service can declare it later.
 * @returns the queue's name
 * @throws AMQPError when the bus refuses or cannot be reached
 */
export async function declareTopology(connection: Connection, settings: KeystoneNotifications): Promise<string> {
  const exchange = settings.control_exchange
  // Keystone publishes with the priority `info`.
  const routingKey = `${settings.topic}.info`
  const queue = settings.pool_name ?? routingKey
  const flags = {
    durable: settings.amqp_durable_queues || settings.rabbit_quorum_queue,
    autoDelete: settings.amqp_auto_delete,
  }
  if (!(await exists(connection.exchangeDeclare({ exchange, passive: true })))) {
    await connection.exchangeDeclare({ exchange, type: 'topic', ...flags })
  }
  if (!(await exists(connection.queueDeclare({ queue, passive: true })))) {
    await connection.queueDeclare({
      queue,
      ...flags,
      arguments: settings.rabbit_quorum_queue ? { 'x-queue-type': 'quorum' } : {},
    })
  }
  await connection.queueBind({ exchange, queue, routingKey })
  return queue
}

async function exists(declared: Promise<unknown>): Promise<boolean> {
  try {
    await declared
    return true
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'NOT_FOUND') return false
    throw error
  }
}
