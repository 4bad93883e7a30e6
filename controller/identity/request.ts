import type { z } from 'zod'
import type { Database } from '../database/connection.js'
import type { Logins } from './login/logins.js'
import type { Params, Rule } from './policy.js'
import type { StoredToken } from './tokens/store.js'

/** What a route is given of an authorised request. */
export type Request = {
  database: Database
  logins: Logins
  token: StoredToken
  params: Params
  /** The first value of a query parameter, undefined when it is absent. */
  query: (name: string) => string | undefined
  header: (name: string) => string
  /** Where the client is: `sourceOf` its address. */
  source: string
  /** Reads and checks the body; ApiError 400 naming every fault. */
  read: <Schema extends z.ZodType>(schema: Schema) => Promise<z.output<Schema>>
  /** Where the client reached us, without /v3: `http://host:5000`. */
  base: string
  /** The whole URL of the request. */
  url: string
}

export type Answer = { status: number; body?: unknown; headers?: Readonly<Record<string, string>> }

/** One operation. GET answers HEAD as well, without the body, unless a HEAD of the same path stands before it. */
export type Route = {
  method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Below /v3, with `:name` for the parameters. */
  path: string
  allow: Rule
  answer: (request: Request) => Promise<Answer>
}

export const ok = (body: unknown): Answer => ({ status: 200, body })
export const created = (body: unknown): Answer => ({ status: 201, body })
export const noContent: Answer = { status: 204 }

/** A collection as Keystone answers it; it has no further pages. */
export function listed(request: Request, plural: string, items: readonly unknown[]): Answer {
  return ok({ [plural]: items, links: { self: request.url, previous: null, next: null } })
}
