import { existsSync, readdirSync } from 'node:fs'
import { commandOf } from '../processes.js'
import { ip } from './ip.js'

/** Something of a virtual machine that a look at its host shows. */
export type Sight =
  | { file: string }
  | { noFile: string }
  /** This tap device, or any, in one of these namespaces. */
  | { tapIn: string[]; tap?: string }
  | { noTapIn: string; tap?: string }
  /** No process names it in its command line. */
  | { noProcessOf: string }

/** @returns whether it can be seen now */
export function isSeen(sight: Sight): boolean {
  if ('file' in sight) return existsSync(sight.file)
  if ('noFile' in sight) return !existsSync(sight.noFile)
  if ('noProcessOf' in sight) return processesOf(sight.noProcessOf).length === 0
  return 'tapIn' in sight ? sight.tapIn.some(place => hasTap(place, sight.tap)) : !hasTap(sight.noTapIn, sight.tap)
}

const hasTap = (namespace: string, tap?: string): boolean =>
  tap === undefined ? tapsIn(namespace).length > 0 : tapsIn(namespace).includes(tap)

/** @returns names of the tap devices of virtual machines in a namespace */
export const tapsIn = (namespace: string): string[] =>
  existsSync(`/run/netns/${namespace}`)
    ? [...ip('-n', namespace, '-o', 'link').matchAll(/ (p[0-9a-f]{11}):/g)].flatMap(([, name]) => name ?? [])
    : []

/** @returns ids of the processes with this text in their command line */
export const processesOf = (text: string): string[] =>
  readdirSync('/proc').filter(pid => /^\d+$/.test(pid) && commandOf(pid).includes(text))
