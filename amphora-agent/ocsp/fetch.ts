import * as z from 'zod'
import { haproxyAccount } from '../ping/ping.js'
import { run } from '../process/run.js'
import { FETCHER, type FetchJob } from './fetcher.js'

/** For everything: the process, the look-up of the name, and the answer. */
const LIMIT_MS = 10_000

const answerSchema = z.union([z.object({ response: z.base64() }), z.object({ failed: z.string().max(300) })])

/** A responder gave no response; the message is a clause. */
export class NoResponse extends Error {}

/**
 * Asks a responder in a process of its own, which lives for this and has the rights of HAProxy's account: it reaches
 * what HAProxy reaches.
 * @returns what it answered, not verified
 * @throws NoResponse
 */
export async function fetchResponse(url: string, request: Buffer): Promise<Buffer> {
  const { uid, gid } = haproxyAccount()
  const job: FetchJob = { url, request: request.toString('base64') }
  // The agent is one file.
  const [, program = ''] = process.argv
  const args = ['--max-semi-space-size=1', '--max-old-space-size=32', program, FETCHER, `${uid}:${gid}`]
  const { stdout } = await run(process.execPath, args, { input: JSON.stringify(job), timeoutMs: LIMIT_MS }).catch(
    () => {
      throw new NoResponse('it does not answer in time')
    },
  )
  const answer = answerSchema.safeParse(parsed(stdout))
  if (!answer.success) throw new NoResponse('the process that asks it has failed')
  if ('failed' in answer.data) throw new NoResponse(answer.data.failed)
  return Buffer.from(answer.data.response, 'base64')
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
