import type Router from '@koa/router'
import type { Context } from 'koa'
import { z } from 'zod'
import { readJson } from '../../http/body.js'
import { callerOf } from '../../identity/authenticate.js'
import { attribute, parseAttributes, unwrap } from './body.js'
import { paginationLinks, parseListing, pickFields } from './listing.js'
import { missing, NeutronError } from './neutron-error.js'
import { type Item, MOST_TAGS, type Resource } from './resource.js'

const BODY_LIMIT = 1024 * 1024

/**
 * List, show, create, update, delete and the tags of one kind of resource.
 * @param baseUrl how the caller reaches this service, for links
 */
export function mountResource(router: Router, resource: Resource, baseUrl: (ctx: Context) => string): void {
  const { singular, plural } = resource
  const collection = `/v2.0/${plural}`

  router.get(collection, async ctx => {
    const listing = parseListing(ctx.querystring)
    const page = await resource.list(callerOf(ctx), listing)
    const links = paginationLinks(listing, page, `${baseUrl(ctx)}${collection}`, ctx.querystring)
    ctx.body = {
      [plural]: page.items.map(item => pickFields(item, listing.fields)),
      ...(links.length > 0 ? { [`${plural}_links`]: links } : {}),
    }
  })

  router.post(collection, async ctx => {
    const { items, bulk } = unwrap(await readJson(ctx, BODY_LIMIT), singular, plural)
    const made = await resource.create(callerOf(ctx), items)
    ctx.status = 201
    ctx.body = bulk ? { [plural]: made } : { [singular]: made[0] }
  })

  router.get(`${collection}/:id`, async ctx => {
    const item = await show(ctx)
    ctx.body = { [singular]: pickFields(item, parseListing(ctx.querystring).fields) }
  })

  router.put(`${collection}/:id`, async ctx => {
    const [attributes] = unwrap(await readJson(ctx, BODY_LIMIT), singular).items
    ctx.body = { [singular]: await resource.update(callerOf(ctx), idOf(ctx), attributes) }
  })

  router.delete(`${collection}/:id`, async ctx => {
    await resource.remove(callerOf(ctx), idOf(ctx))
    ctx.status = 204
  })

  router.get(`${collection}/:id/tags`, async ctx => {
    ctx.body = { tags: (await show(ctx)).tags }
  })

  router.put(`${collection}/:id/tags`, async ctx => {
    const { tags } = parseAttributes(tagsSchema, await readJson(ctx, BODY_LIMIT))
    ctx.body = { tags: await resource.retag(callerOf(ctx), idOf(ctx), () => tags) }
  })

  router.delete(`${collection}/:id/tags`, async ctx => {
    await resource.retag(callerOf(ctx), idOf(ctx), () => [])
    ctx.status = 204
  })

  router.get(`${collection}/:id/tags/:tag`, async ctx => {
    if (!(await show(ctx)).tags.includes(tagOf(ctx))) throw noSuchTag(tagOf(ctx))
    ctx.status = 204
  })

  router.put(`${collection}/:id/tags/:tag`, async ctx => {
    const tag = parseAttributes(tagSchema, tagOf(ctx))
    await resource.retag(callerOf(ctx), idOf(ctx), tags => [...tags, tag])
    ctx.body = null
    ctx.status = 201
  })

  router.delete(`${collection}/:id/tags/:tag`, async ctx => {
    await resource.retag(callerOf(ctx), idOf(ctx), tags => {
      if (!tags.includes(tagOf(ctx))) throw noSuchTag(tagOf(ctx))
      return tags.filter(tag => tag !== tagOf(ctx))
    })
    ctx.status = 204
  })

  async function show(ctx: Context): Promise<Item> {
    const item = await resource.show(callerOf(ctx), idOf(ctx))
    if (item === null) throw missing(singular, idOf(ctx))
    return item
  }
}

const idOf = (ctx: Context): string => String(ctx.params.id)
const tagOf = (ctx: Context): string => String(ctx.params.tag)

// A comma separates tags in filters, so none can hold one.
const tagSchema = attribute.text.regex(/^[^,]{1,60}$/, { error: 'a tag has 1 to 60 characters and no comma' })
const tagsSchema = z.strictObject({ tags: z.array(tagSchema).max(MOST_TAGS, { error: `at most ${MOST_TAGS} tags` }) })

const noSuchTag = (tag: string) => new NeutronError(404, 'TagNotFound', `Tag ${tag} could not be found.`)
