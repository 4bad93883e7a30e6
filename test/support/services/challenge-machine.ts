import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

/** What a machine answers to one path. */
export type PathAnswer = {
  status?: number
  headers?: Record<string, string>
  body?: string
  fault?: 'silence' | 'endless'
}

export type MachineConfig = {
  paths?: Record<string, PathAnswer>
  /** PEM, and the protocols that it offers by ALPN. */
  tls?: { key: string; cert: string; alpn: string[] }
}

export type ChallengeMachine = {
  configure: (config: MachineConfig) => Promise<void>
  /** `METHOD path Host source-address` of every request so far. */
  requests: string[]
  stop: () => Promise<void>
}

/** Runs inside the machine. One line of JSON replaces the configuration. */
const PROGRAM = `
const http = require('node:http'), https = require('node:https')
let config = {}
const serve = (request, response) => {
  console.log(JSON.stringify([request.method, request.url, request.headers.host, request.socket.remoteAddress].join(' ')))
  const { status = 200, headers = {}, body = '', fault } = config.paths?.[request.url] ?? { status: 404 }
  if (fault === 'silence') return
  response.writeHead(status, headers)
  if (fault !== 'endless') return void response.end(body)
  const more = () => { while (!response.destroyed && response.write('x'.repeat(65536))); }
  response.on('drain', more).on('error', () => {})
  more()
}
http.createServer(serve).listen(80, '::')
let secure
require('node:readline').createInterface({ input: process.stdin }).on('line', line => {
  config = JSON.parse(line)
  secure?.close()
  secure = undefined
  const done = () => console.log(JSON.stringify('configured'))
  if (!config.tls) return done()
  secure = https.createServer({ key: config.tls.key, cert: config.tls.cert, ALPNProtocols: config.tls.alpn }, serve)
  secure.on('tlsClientError', () => {}).listen(443, '::', done)
}).on('close', () => process.exit(0))
`

/** A machine of a tenant with a web server on the ports 80 and 443. @param namespace of the machine */
export async function startChallengeMachine(namespace: string): Promise<ChallengeMachine> {
  const words = ['netns', 'exec', namespace, process.execPath, '-e', PROGRAM]
  const child: ChildProcess = spawn('ip', words, { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = once(child, 'exit')
  const requests: string[] = []
  const waiting: (() => void)[] = []
  createInterface({ input: child.stdout! }).on('line', line => {
    const text = JSON.parse(line) as string
    if (text === 'configured') waiting.shift()?.()
    else requests.push(text)
  })
  const machine: ChallengeMachine = {
    requests,
    configure: async config => {
      const configured = new Promise<void>(resolve => waiting.push(resolve))
      child.stdin!.write(`${JSON.stringify(config)}\n`)
      await configured
    },
    stop: async () => {
      child.kill('SIGKILL')
      await ended
    },
  }
  await machine.configure({})
  return machine
}
