import type Koa from 'koa'
import compose from 'koa-compose'

/**
 * Serves another API, with its own dialect, under a prefix of this one. Requests below the prefix never reach this one.
 * @param prefix ends with a slash
 */
export function mount(app: Koa, prefix: string, mounted: Koa): void {
  const handle = compose(mounted.middleware)
  app.middleware.unshift((ctx, next) => (ctx.path.replace(/\/{2,}/g, '/').startsWith(prefix) ? handle(ctx) : next()))
}
