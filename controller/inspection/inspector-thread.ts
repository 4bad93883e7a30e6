import { readlinkSync } from 'node:fs'
import { parentPort } from 'node:worker_threads'
import { type Inspected, inspect } from '../../x509/material/inspect.js'
import type { Material } from '../../x509/material/material.js'

/**
 * A message from the thread: once loaded, its directory below /proc (`1/task/2`); then for each material what it
 * found. An error ends the thread.
 */
export type ThreadMessage = { task: string } | Inspected

const send = (message: ThreadMessage) => parentPort?.postMessage(message)

parentPort?.on('message', (material: Material) => send(inspect(material)))
send({ task: readlinkSync('/proc/thread-self') })
