import type { Context } from 'koa'
import type * as z from 'zod'
import { readBytes, readJson } from '../http/body.js'
import { ApiError } from '../http/errors.js'
import type { Described } from './described.js'
import type { Params } from './router.js'

/** The location of a request. */
export type Location = {
  /** The path for routing: its canonical spelling, without the prefix under which the API is mounted. */
  path: string
  /** The path as the client wrote it, without that prefix. */
  written: string
  /** URL of this API's root as the client reaches it, without a trailing slash. */
  base: () => string
}

/** The location of a request before the dialect interprets it. */
export type PlainLocation = Location & {
  /** @param mounted the prefix under which the API is mounted, without a trailing slash; '' when absent */
  base: (mounted?: string) => string
}

/** Parses a value with a schema. @throws ApiError 400 that says what is wrong, in the API's own wording */
export type Validate = <Value>(schema: z.ZodType<Value>, value: unknown) => Value | Promise<Value>

export type BodyRules = {
  maxBytes: number
  /** Content-Type must be exactly application/json: neither absent nor a `+json` type. */
  exactType?: boolean
  /** Statuses that this API uses instead of the usual 400, 413 and 415. */
  statuses?: Readonly<Record<number, number>>
  /** Applied to every JSON body before its schema. */
  prepare?: (value: unknown) => unknown
}

/** What the kernel passes to a call besides the request. */
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
 * A request to a route. Computes anything costly only on demand.
 * `Body` is the output type of the route's body schema.
 */
export class Call<Caller, Body = unknown> {
  readonly caller: Caller
  readonly route: Described
  /** The named parts of the path, decoded. */
  readonly params: Params
  /** Minor number of the negotiated microversion; 0 if the API has no microversions. */
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

  /** URL of this API's root as the client reaches it, without a trailing slash. */
  get base(): string {
    return this.#options.location.base()
  }

  /** URL of the request as the client wrote it, without the query. */
  get url(): string {
    return `${this.base}${this.#options.location.written}`
  }

  /** The path for routing, in its canonical spelling. */
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

  /** The first value of a query parameter; undefined when absent. */
  argument(name: string): string | undefined {
    return this.query.get(name) ?? undefined
  }

  get requestId(): string {
    return this.#ctx.state.requestId
  }

  /** Address of the client behind trusted proxies; null when the connection is closed. */
  get address(): string | null {
    return this.#options.addressOf(this.#ctx)
  }

  /** Remote port of the connection, which distinguishes clients with the same address. */
  get port(): number | undefined {
    return this.#ctx.socket.remotePort
  }

  /** A header of the request; '' when absent. */
  header(name: string): string {
    return this.#ctx.get(name)
  }

  hasHeader(name: string): boolean {
    return this.#ctx.req.headers[name.toLowerCase()] !== undefined
  }

  /** The media type that the client prefers, by its Accept header; false when it accepts none of them. */
  accepts(...types: string[]): string | false {
    return this.#ctx.accepts(types)
  }

  /** Whether the client reads compressed answers. Caches learn that the answer depends on it. */
  acceptsGzip(): boolean {
    this.#ctx.vary('Accept-Encoding')
    return this.#ctx.acceptsEncodings('gzip', 'identity') === 'gzip'
  }

  /** The JSON body before any schema; undefined until it is read, or without a body. */
  get sent(): unknown {
    return this.#sent
  }

  /**
   * The JSON body, read once.
   * @param anyType accepts any Content-Type, for bodies of DELETE
   * @throws ApiError 400, 413, 415
   */
  async json({ anyType = false } = {}): Promise<unknown> {
    if (this.#isRead) return this.#sent
    const { maxBytes, exactType = false, statuses = {}, prepare } = this.#options.body
    try {
      if (exactType && !anyType && this.#ctx.request.type !== 'application/json') {
        throw new ApiError(415, 'The Content-Type of the body must be application/json.')
      }
      const limit = this.route.maxBytes ?? maxBytes
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

  /** The JSON body, parsed with the route's `request` schema. @throws ApiError 400, 413, 415 */
  async body(): Promise<Body> {
    const { request } = this.route
    if (request === undefined) throw new Error(`${this.route.method} ${this.route.path} has no body schema`)
    return this.read(request as z.ZodType<Body>)
  }

  /** The JSON body, parsed with a given schema, for routes with several. @throws ApiError 400, 413, 415 */
  async read<Read>(schema: z.ZodType<Read>): Promise<Read> {
    return this.#options.validate(schema, await this.json())
  }

  /** The raw body. @throws ApiError 413 */
  bytes(maxBytes: number): Promise<Buffer> {
    return readBytes(this.#ctx, maxBytes)
  }
}
