import type { Context } from 'koa'
import type { Fault } from '../http/application.js'
import type { ApiError } from '../http/errors.js'
import type { Place } from '../process/fair-queue.js'
import type { Answer } from './answer.js'
import type { BodyRules, Call, Location, PlainLocation, Validate } from './call.js'
import type { Described } from './described.js'
import type { Microversions } from './microversion.js'

/**
 * What tells one API from the others. `Service` is what its handlers work with, `Caller` who asks, `Right` what its routes name as the
 * right that they need.
 */
export type Dialect<Service, Caller, Right> = {
  /** Name of the service in the log. */
  name: string
  /** Addresses and networks whose X-Forwarded-* headers are believed. */
  trustedProxies: readonly string[]
  /** How clients reach the API, where the operator says so; then no header is asked. */
  publicUrl?: string | undefined
  caseSensitive: boolean
  /** Whether HEAD is answered wherever GET is. */
  headIsGet: boolean
  microversions?: Microversions
  body: BodyRules

  /** Finds out where a request came to, given what holds without it. It may refuse the request. */
  locate?: (ctx: Context, plain: PlainLocation) => Location
  /** Who asks. @param path as the client wrote it @throws ApiError 401 */
  authenticate: (ctx: Context, path: string) => Promise<Caller>
  /** Whether a path that no route has needs a token before it is said so. */
  hidesPath: (path: string) => boolean
  /** Whom a request counts for where callers take turns; null when it needs no turn. @param caller null on open routes */
  placeOf: (caller: Caller | null, ctx: Context) => Place | null
  /** Looks at headers before the route, such as Accept, and sets those of every answer. @throws ApiError */
  admit?: (ctx: Context, path: string) => void
  /** Paths that are answered whatever the method, without a token, such as a health check. */
  intercept?: Readonly<Record<string, (ctx: Context) => Promise<void>>>

  /** Checks the right of a route as far as the token and the path tell; without it, handlers check it. @throws ApiError 403 */
  authorise?: (service: Service, call: Call<Caller>, right: Right) => void
  validate: Validate
  /** Runs a handler: for what belongs to every handler, such as repeated requests. */
  run?: (service: Service, call: Call<Caller>, handle: (service: Service) => Promise<Answer>) => Promise<Answer>
  /** Told of everything that a protected route ends with other than an answer, before it is shown. */
  refused?: (service: Service, call: Call<Caller>, right: Right, error: unknown) => Promise<void>
  /** Refuses a request that no route takes in words of its own; else the kernel does. @param routes those of the path */
  unrouted?: (service: Service, ctx: Context, routes: readonly Described[]) => Promise<void>

  /** What an error means to clients, such as a violated constraint. @returns the same error when it means nothing else */
  translate?: (error: unknown, location: Location) => unknown
  /** An error about the path itself: 404 or 405. */
  routingError?: (status: number, message: string) => ApiError
  /** The body of an error. */
  presentFault: (fault: Fault, error: unknown) => unknown
}
