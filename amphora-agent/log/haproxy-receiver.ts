import { statSync } from 'node:fs'
import { appendFile, rename, writeFile } from 'node:fs/promises'
import { DgramAsPromised } from 'dgram-as-promised'
import { LOG_DIRECTORY, LOG_PORT } from '../protocol/paths.js'
import type { Log } from './log.js'

export const HAPROXY_LOG = `${LOG_DIRECTORY}/haproxy.log`

const MAX_LINE = 2048
/** Time between two batches. */
const PAUSE_MS = 200
/**
 * Size of one batch; lines beyond it are counted and dropped. A busy HAProxy that logs every request produces half
 * as much per pause.
 */
const MAX_BATCH_SIZE = 1024 * 1024
/** Limit of the file, and of its predecessor. */
const MAX_SIZE = 2 * 1024 * 1024

/** Lines on their way to a file. */
export type LineWriter = {
  write: (line: string) => void
  /** Writes the waiting lines and stops. */
  close: () => Promise<void>
}

/**
 * Appends lines to a file in batches, so that a flood of lines costs little. A file that reaches its limit is
 * renamed to `.1`, or truncated if it cannot be renamed. Lines that exceed a batch or find the disk full are
 * dropped, and the file records how many: the writer never blocks.
 */
export function createLineWriter(
  path: string,
  { maxBatchSize = MAX_BATCH_SIZE, maxSize = MAX_SIZE }: { maxBatchSize?: number; maxSize?: number } = {},
): LineWriter {
  let waiting: string[] = []
  let length = 0
  let lost = 0
  let size = statSync(path, { throwIfNoEntry: false })?.size ?? 0
  let timer: NodeJS.Timeout | null = null
  let last: Promise<void> = Promise.resolve()

  const flush = async () => {
    timer = null
    const [lines, missing] = [waiting, lost]
    waiting = []
    length = 0
    lost = 0
    if (lines.length + missing === 0) return
    const text = lines.join('') + (missing === 0 ? '' : `${new Date().toISOString()} ${missing} lines were lost\n`)
    try {
      if (size + text.length > maxSize) {
        // If the file cannot be renamed, discard its contents: a growing log would fill the disk.
        await rename(path, `${path}.1`).catch(() => writeFile(path, ''))
        size = 0
      }
      await appendFile(path, text)
      size += text.length
    } catch {
      lost += lines.length + missing
    }
  }
  const flushNext = () => {
    last = last.then(flush)
    return last
  }

  return {
    write: line => {
      if (length + line.length > maxBatchSize) {
        lost += 1
      } else {
        waiting.push(`${line}\n`)
        length += line.length + 1
      }
      timer ??= setTimeout(() => void flushNext(), PAUSE_MS)
    },
    close: async () => {
      if (timer) clearTimeout(timer)
      await flushNext()
    },
  }
}

/** Writes HAProxy's log (HAPROXY_LOG_LINE) to a file. @returns a function that stops it */
export async function receiveHaproxyLog(log: Log): Promise<() => Promise<void>> {
  const writer = createLineWriter(HAPROXY_LOG)
  const receiver = DgramAsPromised.createSocket({ type: 'udp4' })
  receiver.socket.on('message', (bytes: Buffer) =>
    writer.write(bytes.toString('utf8', 0, MAX_LINE).trimEnd().replaceAll('\n', ' | ')),
  )
  receiver.socket.on('error', (error: Error) => log.error(`cannot receive HAProxy's log: ${error.message}`))
  try {
    await receiver.bind(LOG_PORT, '127.0.0.1')
  } catch (error) {
    log.error(`cannot receive HAProxy's log: ${error instanceof Error ? error.message : String(error)}`)
  }
  return async () => {
    await receiver.close()
    await writer.close()
  }
}
