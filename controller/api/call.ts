import type { Context } from 'koa'
import type { z } from 'zod'
import { readBytes, readJson } from '../http/body.js'
import { ApiError } from '../http/errors.js'
import type { Described } from './described.js'
import type { Params } from './router.js'

/** Where a request came to. */
export type Location = {
  /** The path that is routed: one spelling of it, without a prefix under which the API is mounted. */
  path: string
  /** The path as the client wrote it, without that prefix. */
  written: string
  /** URL of the root of this API as the client reaches it, without a slash at its end. */
  base: () => string
}

/** What holds of a request before the dialect has looked at it. */
export type PlainLocation = Location & {
  /** @param mounted the prefix under which the API is mounted, with no slash at its end; '' when absent */
  base: (mounted?: string) => string
}

/** Reads a value with a schema. @throws ApiError 400 that says what is wrong, in the words of the API */
export type Validate = <Value>(schema: z.ZodType<Value>, value: unknown) => Value | Promise<Value>

export type BodyRules = {
  mostBytes: number
  /** Whether Content-Type must be application/json itself: neither absent nor a type built on JSON. */
  exactType?: boolean
  /** Statuses that this API answers with instead of the usual 400, 413 and 415. */
  statuses?: Readonly<Record<number, number>>
  /** Applied to every JSON body before its schema. */
  prepare?: (value: unknown) => unknown
}

/** What the kernel gives a call besides the request itself. */
export type CallOptions<Caller> = {
  caller: Caller
  route: Described
  params: Params
  location: Location
  minor: number
  body: BodyRules
  validate: Validate
  addressOf: (ctx: Context) => string | null
}

/**
 * One request that a route takes. Everything that costs something is computed when it is asked for.
 * `Body` is what the schema of the route makes of the request's body.
 */
export class Call<Caller, Body = unknown> {
  readonly caller: Caller
  readonly route: Described
  /** The named parts of the path, decoded. */
  readonly params: Params
  /** Of the microversion that is spoken; 0 where the API has none. */
  readonly minor: number
  readonly #ctx: Context
  readonly #options: CallOptions<Caller>
  #query: URLSearchParams | undefined
  #sent: unknown
  #isRead = false

  constructor(ctx: Context, options: CallOptions<Caller>) {
    this.caller = options.caller
    this.route = options.route
    this.params = options.params
    this.minor = options.minor
    this.#ctx = ctx
    this.#options = options
  }

  /** URL of the root of this API as the client reaches it, without a slash at its end. */
  get base(): string {
    return this.#options.location.base()
  }

  /** URL of the request as the client wrote it, without the query. */
  get url(): string {
    return `${this.base}${this.#options.location.written}`
  }

  /** The path that was routed, in its one spelling. */
  get path(): string {
    return this.#options.location.path
  }

  get queryString(): string {
    return this.#ctx.querystring
  }

  get query(): URLSearchParams {
    this.#query ??= new URLSearchParams(this.#ctx.querystring)
    return this.#query
  }

  /** The first value of a query parameter, undefined when it is absent. */
  argument(name: string): string | undefined {
    return this.query.get(name) ?? undefined
  }

  get requestId(): string {
    return this.#ctx.state.requestId
  }

  /** Address of the client, behind trusted proxies; null when the connection is gone. */
  get address(): string | null {
    return this.#options.addressOf(this.#ctx)
  }

  /** Port of the connection, which tells clients of one address apart. */
  get port(): number | undefined {
    return this.#ctx.socket.remotePort
  }

  /** A header of the request, '' when there is none. */
  header(name: string): string {
    return this.#ctx.get(name)
  }

  hasHeader(name: string): boolean {
    return this.#ctx.req.headers[name.toLowerCase()] !== undefined
  }

  /** The first of the media types that the client takes best; false when it takes none of them. */
  accepts(...types: string[]): string | false {
    return this.#ctx.accepts(types)
  }

  /** The JSON body as it was read, before any schema; undefined before that, and when there is none. */
  get sent(): unknown {
    return this.#sent
  }

  /**
   * The JSON body, read once.
   * @param anyType whether it is read whatever Content-Type says, for bodies of DELETE
   * @throws ApiError 400, 413, 415
   */
  async json({ anyType = false } = {}): Promise<unknown> {
    if (this.#isRead) return this.#sent
    const { mostBytes, exactType = false, statuses = {}, prepare } = this.#options.body
    try {
      if (exactType && !anyType && this.#ctx.request.type !== 'application/json') {
        throw new ApiError(415, 'The Content-Type of the body must be application/json.')
      }
      const limit = this.route.mostBytes ?? mostBytes
      const value = await readJson(this.#ctx, limit, { anyType: anyType || exactType })
      this.#sent = prepare === undefined ? value : prepare(value)
    } catch (error) {
      const status = error instanceof ApiError ? statuses[error.status] : undefined
      if (error instanceof ApiError && status !== undefined) throw new ApiError(status, error.message, error.headers)
      throw error
    }
    this.#isRead = true
    return this.#sent
  }

  /** The JSON body as the route's `request` schema reads it. @throws ApiError 400, 413, 415 */
  async body(): Promise<Body> {
    const { request } = this.route
    if (request === undefined) throw new Error(`${this.route.method} ${this.route.path} has no schema of its body`)
    return this.read(request as z.ZodType<Body>)
  }

  /** The JSON body as a schema reads it, where more than one may. @throws ApiError 400, 413, 415 */
  async read<Read>(schema: z.ZodType<Read>): Promise<Read> {
    return this.#options.validate(schema, await this.json())
  }

  /** The body as it is. @throws ApiError 413 */
  bytes(mostBytes: number): Promise<Buffer> {
    return readBytes(this.#ctx, mostBytes)
  }
}
