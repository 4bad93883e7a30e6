import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { clientPython } from '../clients/openstack-session.js'
import type { RabbitMq } from './rabbitmq.js'

const program = join(dirname(fileURLToPath(import.meta.url)), 'keystone-notifier.py')

export type NotifierSettings = {
  exchange?: string
  topic?: string
  /** `messaging` sends without the envelope. */
  driver?: 'messagingv2' | 'messaging'
  /** The group oslo_messaging_rabbit of the identity service's settings. */
  rabbit?: Readonly<Record<string, boolean>>
}

/** Resolves when the message bus has the notification. */
export type Notify = (eventType: string, payload: unknown, settings?: NotifierSettings) => Promise<void>

/** The real oslo.messaging in a separate process, which ends with the test. */
export function startNotifier(t: Test, { url }: RabbitMq): Notify {
  const child = spawn(clientPython(), [program, url.replace('amqp://', 'rabbit://')])
  const ended = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  let words = ''
  child.stderr.on('data', text => {
    words += text
  })
  const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  return async (event_type, payload, given = {}) => {
    const settings = { exchange: 'keystone', topic: 'notifications', driver: 'messagingv2', rabbit: {}, ...given }
    child.stdin.write(`${JSON.stringify({ event_type, payload, settings })}\n`)
    const { done } = await answers.next()
    if (done === true) throw new Error(`The notifier has ended: ${words}`)
  }
}

/** Keystone's payload about a project in its format `basic`. */
export const basicPayload = (projectId: string) => ({ resource_info: projectId })

/** Keystone's payload about a project in its format `cadf`. */
export const cadfPayload = (projectId: string, outcome = 'success') => ({
  typeURI: 'http://schemas.dmtf.org/cloud/audit/1.0/event',
  eventType: 'activity',
  id: '8d7b1f1b-cd6c-5f1a-a6f0-4d3d1b3d6b9b',
  eventTime: '2026-11-21T20:00:00.000000+0000',
  action: 'deleted.project',
  outcome,
  initiator: {
    typeURI: 'service/security/account/user',
    id: 'c0ffee00c0ffee00c0ffee00c0ffee00',
    host: { agent: 'python-keystoneclient', address: '192.0.2.1' },
  },
  target: { typeURI: 'data/security/project', id: projectId },
  observer: { typeURI: 'service/security', id: '0123456789abcdef0123456789abcdef' },
  resource_info: projectId,
})
