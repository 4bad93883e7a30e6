import { spawn } from 'node:child_process'
import { closeSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { writePrivateFile } from '../../../process/private-file.js'
import { identityOf, isAlive, type ProcessIdentity } from '../../../process/process-identity.js'
import { logFile, openLog } from '../../host/log-files.js'
import { entering, type Place } from '../../host/plug.js'

export const WEB_SERVERS = ['web-1', 'web-2'] as const
export const WEB_PORT = 8080

/** A web server of the demo, and its address on the private network. */
export type WebServer = { name: (typeof WEB_SERVERS)[number]; address: string }

const program = join(dirname(fileURLToPath(import.meta.url)), 'demo-web-server.js')
const recordOf = (directory: string, name: string): string => join(directory, 'run', `demo-${name}.pid`)

/** Starts a web server at the place of its attachment. @returns true when it was already running */
export function ensureWebServer(directory: string, name: WebServer['name'], place: Place): boolean {
  const record = recordOf(directory, name)
  const running = readIdentity(record)
  if (running !== null && isAlive(running)) return true
  const log = openLog(logFile(directory, `demo-${name}`))
  const [enter, ...words] = [...entering(place), process.execPath, program, name, String(WEB_PORT)] as const
  const child = spawn(enter, words, {
    cwd: '/',
    detached: true,
    stdio: ['ignore', log, log],
  })
  closeSync(log)
  child.on('error', () => undefined)
  child.unref()
  const identity = child.pid === undefined ? null : identityOf(child.pid)
  if (identity !== null) writePrivateFile(record, JSON.stringify(identity))
  return false
}

function readIdentity(path: string): ProcessIdentity | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as ProcessIdentity
  } catch {
    return null
  }
}
