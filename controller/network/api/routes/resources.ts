import { z } from 'zod'
import { jsonAnswer, NO_CONTENT } from '../../../api/answer.js'
import type { Call } from '../../../api/call.js'
import { objectOf, type Parameter, ref } from '../../../api/schema.js'
import type { Caller } from '../../../identity/caller.js'
import { attribute, parseAttributes, unwrap } from '../body.js'
import { route, type Service } from '../dialect.js'
import { paginationLinks, parseListing, pickFields } from '../listing.js'
import { missing, NeutronError } from '../neutron-error.js'
import { type Item, MOST_TAGS } from '../resource.js'
import type { Source } from '../select.js'

/** List, show, create, update, delete and the tags of one kind of resource. */
export function resourceRoutes({ kind: singular, columns, filters }: Source) {
  const plural = `${singular}s` as const
  const collection = `/v2.0/${plural}`
  const one = `${collection}/:id`
  const tags = `${one}/tags`
  const group = plural
  const item = objectOf({ [singular]: ref(singular) })
  const resourceOf = ({ resources }: Service) => resources[singular]
  const find = async (service: Service, { caller, params }: Call<Caller>): Promise<Item> => {
    const found = await resourceOf(service).show(caller, params.id ?? '')
    if (found === null) throw missing(singular, params.id ?? '')
    return found
  }

  return [
    route({
      ...{ method: 'GET', path: collection, right: 'read', group, status: 200 },
      summary: `List ${plural}`,
      parameters: [...Object.keys({ ...columns, ...filters }).map(filterParameter), ...LIST_PARAMETERS.map(shared)],
      answer: objectOf({ [plural]: { type: 'array', items: ref(singular) }, [`${plural}_links`]: ref('links') }, [
        plural,
      ]),
      handle: async (service, { caller, base, queryString }) => {
        const listing = parseListing(queryString)
        const page = await resourceOf(service).list(caller, listing)
        const links = paginationLinks(listing, page, `${base}${collection}`, queryString)
        return jsonAnswer(200, {
          [plural]: page.items.map(item => pickFields(item, listing.fields)),
          ...(links.length > 0 ? { [`${plural}_links`]: links } : {}),
        })
      },
    }),
    route({
      ...{ method: 'POST', path: collection, right: 'write', group, status: 201 },
      summary: `Create one ${singular}, or several at once`,
      requestForm: {
        anyOf: [objectOf({ [singular]: ref(`${singular}_create`) }), listOf(plural, `${singular}_create`)],
      },
      answer: { anyOf: [item, listOf(plural, singular)] },
      handle: async (service, call) => {
        const { items, bulk } = unwrap(await call.json(), singular, plural)
        const made = await resourceOf(service).create(call.caller, items)
        return jsonAnswer(201, bulk ? { [plural]: made } : { [singular]: made[0] })
      },
    }),
    route({
      ...{ method: 'GET', path: one, right: 'read', group, status: 200 },
      summary: `Show a ${singular}`,
      parameters: [shared('fields')],
      answer: item,
      handle: async (service, call) => {
        const found = await find(service, call)
        return jsonAnswer(200, { [singular]: pickFields(found, parseListing(call.queryString).fields) })
      },
    }),
    route({
      ...{ method: 'PUT', path: one, right: 'write', group, status: 200 },
      summary: `Change a ${singular}; only what is given changes`,
      requestForm: objectOf({ [singular]: ref(`${singular}_update`) }),
      answer: item,
      handle: async (service, call) => {
        const [attributes] = unwrap(await call.json(), singular).items
        const { caller, params } = call
        return jsonAnswer(200, { [singular]: await resourceOf(service).update(caller, params.id ?? '', attributes) })
      },
    }),
    route({
      ...{ method: 'DELETE', path: one, right: 'write', group, status: 204 },
      summary: `Delete a ${singular}`,
      handle: async (service, { caller, params }) => {
        await resourceOf(service).remove(caller, params.id ?? '')
        return NO_CONTENT
      },
    }),
    route({
      ...{ method: 'GET', path: tags, right: 'read', group, status: 200 },
      summary: `List the tags of a ${singular}`,
      answer: ref('tags'),
      handle: async (service, call) => jsonAnswer(200, { tags: (await find(service, call)).tags }),
    }),
    route({
      ...{ method: 'PUT', path: tags, right: 'write', group, status: 200 },
      summary: `Replace the tags of a ${singular}`,
      request: tagsSchema,
      answer: ref('tags'),
      handle: async (service, call) => {
        const { tags } = await call.body()
        return jsonAnswer(200, { tags: await resourceOf(service).retag(call.caller, call.params.id ?? '', () => tags) })
      },
    }),
    route({
      ...{ method: 'DELETE', path: tags, right: 'write', group, status: 204 },
      summary: `Remove all tags of a ${singular}`,
      handle: async (service, { caller, params }) => {
        await resourceOf(service).retag(caller, params.id ?? '', () => [])
        return NO_CONTENT
      },
    }),
    route({
      ...{ method: 'GET', path: `${tags}/:tag`, right: 'read', group, status: 204 },
      summary: `Check whether a ${singular} has a tag`,
      handle: async (service, call) => {
        const { tag = '' } = call.params
        if (!(await find(service, call)).tags.includes(tag)) throw noSuchTag(tag)
        return NO_CONTENT
      },
    }),
    route({
      ...{ method: 'PUT', path: `${tags}/:tag`, right: 'write', group, status: 201 },
      summary: `Add a tag to a ${singular}`,
      handle: async (service, { caller, params }) => {
        const tag = parseAttributes(tagSchema, params.tag)
        await resourceOf(service).retag(caller, params.id ?? '', tags => [...tags, tag])
        return { status: 201 }
      },
    }),
    route({
      ...{ method: 'DELETE', path: `${tags}/:tag`, right: 'write', group, status: 204 },
      summary: `Remove a tag from a ${singular}`,
      handle: async (service, { caller, params: { id = '', tag = '' } }) => {
        await resourceOf(service).retag(caller, id, tags => {
          if (!tags.includes(tag)) throw noSuchTag(tag)
          return tags.filter(other => other !== tag)
        })
        return NO_CONTENT
      },
    }),
  ]
}

const LIST_PARAMETERS = ['fields', 'sort_key', 'sort_dir', 'limit', 'marker', 'page_reverse']

const filterParameter = (name: string): Parameter => ({
  name,
  in: 'query',
  description: `Only objects whose ${name.replaceAll('_', ' ')} has one of these values.`,
  schema: { type: 'array', items: { type: 'string' } },
})

const shared = (name: string) => ({ $ref: `#/components/parameters/${name}` })

const listOf = (plural: string, schema: string) =>
  objectOf({ [plural]: { type: 'array', items: ref(schema), minItems: 1, maxItems: 100 } })

// A comma separates tags in filters, so none can hold one.
const tagSchema = attribute.text.regex(/^[^,]{1,60}$/, { error: 'a tag has 1 to 60 characters and no comma' })
const tagsSchema = z.strictObject({ tags: z.array(tagSchema).max(MOST_TAGS, { error: `at most ${MOST_TAGS} tags` }) })

const noSuchTag = (tag: string) => new NeutronError(404, 'TagNotFound', `Tag ${tag} could not be found.`)
