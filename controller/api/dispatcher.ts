import type { Context, Middleware } from 'koa'
import { ApiError } from '../http/errors.js'
import { createLargeBodies } from '../http/large-bodies.js'
import { createPublicBase, type PublicBase } from '../http/public-base.js'
import { createClientAddress } from '../http/trusted-proxies.js'
import type { Turns } from '../http/turns.js'
import { type Answer, send } from './answer.js'
import { Call, type Location } from './call.js'
import type { Dialect } from './dialect.js'
import { MICROVERSION_HEADER, requestedMinor } from './microversion.js'
import type { ProtectedRoute, Route } from './route.js'
import { createRouter, type Found, type Router } from './router.js'

type DispatcherOptions<Service, Caller, Right> = {
  dialect: Dialect<Service, Caller, Right>
  routes: readonly Route<Service, Caller, Right>[]
  service: Service
  turns: Turns
}

/** Takes requests through the steps of an API. */
export class Dispatcher<Service, Caller, Right> {
  readonly #dialect: Dialect<Service, Caller, Right>
  readonly #service: Service
  readonly #turns: Turns
  readonly #largeBodies = createLargeBodies()
  readonly #router: Router<Route<Service, Caller, Right>>
  readonly #baseOf: PublicBase
  readonly #addressOf: (ctx: Context) => string | null

  constructor({ dialect, routes, service, turns }: DispatcherOptions<Service, Caller, Right>) {
    const { publicUrl, trustedProxies } = dialect
    this.#dialect = dialect
    this.#service = service
    this.#turns = turns
    this.#router = createRouter(routes, dialect)
    this.#baseOf = createPublicBase({ publicUrl, trustedProxies })
    this.#addressOf = createClientAddress(trustedProxies)
  }

  readonly middleware: Middleware = async ctx => {
    const dialect = this.#dialect
    // From here on, the path as clients may have joined it (`//v1`) exists no more: rights see what the router sees.
    const path = ctx.path.replace(/\/{2,}/g, '/')
    ctx.path = path
    const plain = { path, written: path, base: (mounted = '') => this.#baseOf(ctx, mounted) }
    const location = dialect.locate?.(ctx, plain) ?? plain
    if (location.path !== path) ctx.path = location.path
    try {
      const found = this.#router.find(ctx.method, location.path)
      const caller = this.#needsToken(location.path, found) ? await dialect.authenticate(ctx, location.written) : null
      const place = dialect.placeOf(caller, ctx)
      const answer = () => this.#answer(ctx, location, found, caller)
      if (place === null) await answer()
      else if (!this.#mayBeLarge(ctx, found)) await this.#turns.take(place, answer)
      else await this.#largeBodies.take(place, () => this.#turns.take(place, answer))
    } catch (error) {
      throw dialect.translate?.(error, location) ?? error
    }
  }

  /** Whether the body may exceed the API's usual limit: by its length, or because it does not say its length. */
  #mayBeLarge(ctx: Context, { match }: Found<Route<Service, Caller, Right>>): boolean {
    const usual = this.#dialect.body.maxBytes
    if (match === null || (match.route.maxBytes ?? 0) <= usual) return false
    return ctx.get('Transfer-Encoding') !== '' || Number(ctx.get('Content-Length')) > usual
  }

  #needsToken(path: string, { match, routes }: Found<Route<Service, Caller, Right>>): boolean {
    if (match !== null) return !('open' in match.route)
    if (this.#interceptorOf(path) !== undefined || routes.some(route => 'open' in route)) return false
    return this.#dialect.hidesPath(path)
  }

  async #answer(
    ctx: Context,
    location: Location,
    { match, routes }: Found<Route<Service, Caller, Right>>,
    caller: Caller | null,
  ): Promise<void> {
    const { body, validate } = this.#dialect
    const minor = this.#negotiate(ctx)
    const interceptor = this.#interceptorOf(location.path)
    if (interceptor !== undefined) return interceptor(ctx)
    this.#dialect.admit?.(ctx, location.path)
    if (match === null) return this.#refuse(ctx, routes)
    const { route, params } = match
    const common = { route, params, location, minor, body, validate, addressOf: this.#addressOf }
    if ('open' in route) {
      send(ctx, await route.handle(this.#service, new Call(ctx, { ...common, caller: null })))
    } else if (caller === null) {
      throw new Error(`${route.method} ${route.path} needs a caller`)
    } else {
      send(ctx, await this.#handle(route, new Call(ctx, { ...common, caller })))
    }
  }

  async #handle(route: ProtectedRoute<Service, Caller, Right>, call: Call<Caller>): Promise<Answer> {
    const { authorise, run, refused } = this.#dialect
    const service = this.#service
    try {
      authorise?.(service, call, route.right)
      if (run === undefined) return await route.handle(service, call)
      return await run(service, call, given => route.handle(given, call))
    } catch (error) {
      await refused?.(service, call, route.right, error)
      throw error
    }
  }

  #interceptorOf(path: string) {
    const { intercept } = this.#dialect
    return intercept !== undefined && Object.hasOwn(intercept, path) ? intercept[path] : undefined
  }

  /** @returns the negotiated minor version, which every answer names */
  #negotiate(ctx: Context): number {
    const { microversions } = this.#dialect
    if (microversions === undefined) return 0
    ctx.vary(MICROVERSION_HEADER)
    const minor = requestedMinor(ctx.get(MICROVERSION_HEADER), microversions)
    ctx.set(MICROVERSION_HEADER, `${microversions.service} 1.${minor}`)
    return minor
  }

  /** Answers OPTIONS. @throws ApiError 404, 405 */
  async #refuse(ctx: Context, routes: readonly Route<Service, Caller, Right>[]): Promise<void> {
    const { headIsGet, unrouted, routingError = (status, message) => new ApiError(status, message) } = this.#dialect
    await unrouted?.(this.#service, ctx, routes)
    if (routes.length === 0) throw routingError(404, 'The resource could not be found.')
    const methods = routes.flatMap(({ method }) => (method === 'GET' && headIsGet ? ['HEAD', 'GET'] : [method]))
    ctx.set('Allow', [...new Set(methods)].join(', '))
    if (ctx.method !== 'OPTIONS') throw routingError(405, `The method ${ctx.method} is not allowed for this resource.`)
    ctx.body = ''
  }
}
