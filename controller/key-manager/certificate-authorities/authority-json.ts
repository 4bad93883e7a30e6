import { sql } from '../../database/sql.js'

/**
 * SQL of the JSON record of a CA (alias a), as text. `base.url` is the root of the API, `asking.project` the
 * project of the caller. `preferred` marks the CA that the project prefers or, without such a choice, the CA
 * preferred globally.
 */
export const AUTHORITY_JSON = sql`json_build_object(
    'ca_id', a.id, 'created', iso_time(a.created_at), 'updated', iso_time(a.updated_at), 'status', 'ACTIVE',
    'plugin_name', a.plugin_name, 'plugin_ca_id', a.plugin_ca_id, 'expiration', iso_time(a.expiration),
    'preferred', coalesce((SELECT q.ca_id = a.id FROM project_certificate_authority q
                            WHERE q.project_id = asking.project AND q.preferred), a.global_preferred),
    'meta', (SELECT json_agg(json_build_object(m.key, m.value) ORDER BY m.position)
               FROM (VALUES (1, 'name', a.name), (2, 'description', a.description), (3, 'subject_dn', a.subject_dn),
                            (4, 'parent_ca_ref', base.url || '/v1/cas/' || a.parent_id),
                            (5, 'ca_signing_certificate', a.certificate), (6, 'intermediates', a.pkcs7)) AS m (position, key, value)
              WHERE m.value IS NOT NULL))::text`
