import { type ClientRequest, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { Credential } from '../protocol/key-manager/credential.js'

export type LentAnswer = { status: number; bytes: Buffer }

/** Reads from a key manager with a credential that the controller has lent. */
export type LentAccess = {
  /** @throws Error if a service gives no answer, CredentialRefused */
  get: (path: string, accept: string, signal: AbortSignal) => Promise<LentAnswer>
}

/** The identity service does not accept the credential: it has ended, or was replaced. */
export class CredentialRefused extends Error {}

type Service = Credential['identity']
type Outgoing = { method: 'GET' | 'POST'; path: string; headers: Record<string, string>; body?: object }

const MAX_ANSWER_BYTES = 1024 * 1024

/** Keeps one token. Every request has a connection of its own, through the controller's gateway. */
export function openLentAccess({ id, secret, gateway, identity, keyManager }: Credential): LentAccess {
  let token: Promise<string> | null = null

  const send = async ({ url, ca, insecure }: Service, outgoing: Outgoing, signal: AbortSignal) => {
    const target = new URL(`${url}${outgoing.path}`)
    const isTls = target.protocol === 'https:'
    const host = target.hostname.replace(/^\[|\]$/g, '')
    const socket = await connectThrough(gateway, host, Number(target.port) || (isTls ? 443 : 80), signal)
    const servername = /^[\d.]+$|:/.test(host) ? '' : host
    const secured = isTls
      ? connectTls({ socket, servername, host, rejectUnauthorized: !insecure, ...(ca !== null && { ca }) })
      : socket
    const { method, headers, body } = outgoing
    const sent = (isTls ? requestHttps : requestHttp)(target, {
      ...{ method, signal, createConnection: () => secured },
      headers: { ...headers, Connection: 'close', ...(body !== undefined && { 'Content-Type': 'application/json' }) },
    })
    return answerOf(sent, body)
  }
  const signIn = async (signal: AbortSignal): Promise<string> => {
    const credential = { methods: ['application_credential'], application_credential: { id, secret } }
    const body = { auth: { identity: credential } }
    const { status, headers } = await send(
      identity,
      { method: 'POST', path: '/auth/tokens?nocatalog', headers: {}, body },
      signal,
    )
    const issued = headers['x-subject-token']
    if (status === 201 && typeof issued === 'string') return issued
    if (status === 401 || status === 404) throw new CredentialRefused('the identity service refuses the credential')
    throw new Error(`the identity service answers ${status}`)
  }
  const currentToken = (signal: AbortSignal): Promise<string> => {
    token ??= signIn(signal).catch(error => {
      token = null
      throw error
    })
    return token
  }
  return {
    get: async (path, accept, signal) => {
      for (let attempt = 1; ; attempt++) {
        const used = currentToken(signal)
        const headers = { Accept: accept, 'X-Auth-Token': await used }
        const { status, bytes } = await send(keyManager, { method: 'GET', path, headers }, signal)
        if (status !== 401 || attempt === 2) return { status, bytes }
        if (token === used) token = null
      }
    },
  }
}

/** A connection to one of the services, by way of the gateway. */
function connectThrough(
  gateway: Credential['gateway'],
  host: string,
  port: number,
  signal: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const path = `${host.includes(':') ? `[${host}]` : host}:${port}`
    const asked = requestHttp({ ...gateway, method: 'CONNECT', path, signal, agent: false })
    asked.once('error', reject)
    asked.once('connect', (response, socket) => {
      // The request over it reports its errors.
      socket.on('error', () => undefined)
      if (response.statusCode === 200) return resolve(socket)
      socket.destroy()
      reject(new Error(`the controller's gateway answers ${response.statusCode ?? 0}`))
    })
    asked.once('response', response => {
      response.destroy()
      reject(new Error(`the controller's gateway answers ${response.statusCode ?? 0}`))
    })
    asked.end()
  })
}

function answerOf(sent: ClientRequest, body: object | undefined) {
  return new Promise<LentAnswer & { headers: NodeJS.Dict<string | string[]> }>((resolve, reject) => {
    sent.once('error', reject)
    sent.once('response', response => {
      const chunks: Buffer[] = []
      let length = 0
      response.on('data', (chunk: Buffer) => {
        length += chunk.length
        if (length > MAX_ANSWER_BYTES) response.destroy(new Error('the answer is too long'))
        else chunks.push(chunk)
      })
      response.once('error', reject)
      response.once('end', () =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, bytes: Buffer.concat(chunks) }),
      )
    })
    sent.end(body === undefined ? undefined : JSON.stringify(body))
  })
}
