import * as z from 'zod'

const id = z.string().min(1).max(255)
const name = z.string().min(1).max(255)

const domain = z
  .object({ id: id.optional(), name: name.optional() })
  .refine(ref => ref.id !== undefined || ref.name !== undefined, 'needs an id or a name')

/** A reference by ID, or by name within a domain. */
const inDomain = z
  .object({ id: id.optional(), name: name.optional(), domain: domain.optional() })
  .refine(
    ref => ref.id !== undefined || (ref.name !== undefined && ref.domain !== undefined),
    'needs an id, or a name with a domain',
  )

const password = z.object({
  user: z.intersection(inDomain, z.object({ password: z.string().max(4096) })),
})

const applicationCredential = z
  .object({ id: id.optional(), name: name.optional(), user: inDomain.optional(), secret: z.string().max(4096) })
  .refine(
    ref => ref.id !== undefined || (ref.name !== undefined && ref.user !== undefined),
    'needs an id, or a name with a user',
  )

const identity = z
  .object({
    methods: z
      .array(z.enum(['password', 'token', 'application_credential']))
      .min(1)
      .max(3),
    password: password.optional(),
    token: z.object({ id: z.string() }).optional(),
    application_credential: applicationCredential.optional(),
  })
  .check(context => {
    for (const method of context.value.methods) {
      if (context.value[method] !== undefined) continue
      context.issues.push({ code: 'custom', path: [method], message: 'is required by the method', input: undefined })
    }
  })

const scope = z.union(
  [
    z.literal('unscoped').transform(() => ({ unscoped: {} })),
    z
      .strictObject({
        unscoped: z.looseObject({}).optional(),
        project: inDomain.optional(),
        domain: domain.optional(),
        system: z.object({ all: z.literal(true) }).optional(),
      })
      .refine(value => Object.keys(value).length <= 1),
  ],
  'must be "unscoped", or name one project or domain by its id, or by its name with a domain, or be {"system": {"all": true}}',
)

/** The body of POST /v3/auth/tokens. */
export const authRequestSchema = z.object({ auth: z.object({ identity, scope: scope.optional() }) })

export type AuthRequest = z.output<typeof authRequestSchema>['auth']
export type Identity = AuthRequest['identity']
export type DomainReference = z.output<typeof domain>
export type ReferenceInDomain = z.output<typeof inDomain>
export type RequestedScope = {
  unscoped?: object | undefined
  project?: ReferenceInDomain | undefined
  domain?: DomainReference | undefined
  system?: { all: true } | undefined
}
