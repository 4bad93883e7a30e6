import { readlinkSync } from 'node:fs'
import { parentPort } from 'node:worker_threads'
import { inspect } from './inspect.js'
import type { Material } from './material.js'

/**
 * What a thread says: that it has loaded, and its directory below /proc (`1/task/2`); then of each material what is wrong with it, or null.
 * Errors end it.
 */
export type FromThread = { task: string } | { wrong: string | null }

const say = (words: FromThread) => parentPort?.postMessage(words)

parentPort?.on('message', (material: Material) => say({ wrong: inspect(material) }))
say({ task: readlinkSync('/proc/thread-self') })
