import { createInterface } from 'node:readline'
import { until } from '../worlds/krater.js'
import type { TenantMachine } from '../worlds/tenant-machine.js'

/** Sends the requests that it is given, one line of JSON each, each over a new connection. */
const PROGRAM = `const http = require('node:http')
require('node:readline').createInterface({ input: process.stdin }).on('line', line => {
  const { id, url, localAddress, cookie } = JSON.parse(line)
  const say = (status, body, cookie) => console.log(JSON.stringify({ id, status, body, cookie }))
  const headers = cookie === undefined ? {} : { Cookie: cookie }
  const asked = http.get(url, { localAddress, headers, agent: false, timeout: 5000 }, response => {
    let body = ''
    response.setEncoding('utf8')
    response.on('data', piece => { body += piece })
    response.on('end', () => say(response.statusCode, body, response.headers['set-cookie']?.[0]))
    response.on('error', error => say(0, error.code))
  })
  asked.on('timeout', () => asked.destroy())
  asked.on('error', error => say(0, String(error.code)))
}).on('close', () => process.exit())`

type Answer = { status: number; body: string; cookie?: string }
type Question = { url: string; localAddress?: string; cookie?: string }

/** A client that repeats one request, and the member that should answer it; null when any may. */
export type StickyClient = Question & { member: string | null }

/** Clients on a tenant's machine. */
export function createStickyClients(machine: TenantMachine) {
  const { stdin, stdout } = machine.start(PROGRAM, [])
  if (stdin === null || stdout === null) throw new Error("the tenant's program has no pipes")
  const waiting = new Map<number, (answer: Answer) => void>()
  createInterface({ input: stdout }).on('line', line => {
    const { id, ...answer } = JSON.parse(line)
    waiting.get(id)?.(answer)
    waiting.delete(id)
  })
  let lastId = 0
  const ask = (question: Question): Promise<Answer> => {
    const id = ++lastId
    return new Promise(resolve => {
      waiting.set(id, resolve)
      stdin.write(`${JSON.stringify({ id, ...question })}\n`)
    })
  }
  return {
    ask,
    /**
     * Each client repeats its request, and stays with the first member that answers when none is named.
     * @returns, by `stop`, what went wrong
     */
    begin: (clients: readonly StickyClient[], forbidden: string) => {
      const faults: string[] = []
      let rounds = 0
      let running = true
      const asking = (async () => {
        while (running) {
          for (const { member, ...question } of clients) {
            const { status, body } = await ask(question)
            const isRight = status === 200 && (member === null ? body !== forbidden : body === member)
            if (!isRight) faults.push(`${JSON.stringify(question)}: ${status} ${body}, not ${member}`)
          }
          rounds += 1
        }
      })()
      return {
        another: async (count: number) => {
          const then = rounds + count
          await until('every client has sent a request', () => rounds > then)
        },
        stop: async () => {
          running = false
          await asking
          return { faults, rounds }
        },
      }
    },
  }
}
