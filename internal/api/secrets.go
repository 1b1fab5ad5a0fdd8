// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/secrets"
)

// A SecretResource is a secret of the account, without its value, which nothing answers.
type SecretResource struct {
	Name      string     `json:"name"`
	From      string     `json:"from" enum:"vault,directory" doc:"directory is a file of the operator, which comes before the vault and is not changed over HTTP."`
	UpdatedAt *time.Time `json:"updatedAt,omitempty" doc:"When its value was set."`
}

func (s *Server) secretRoutes() {
	read, write := rest.Needs(access.SecretsRead), rest.Needs(access.SecretsWrite)
	rest.Handle(s.rest, rest.Op("secrets-list", http.MethodGet, "/v1/secrets", "List the secrets of the account, without their values"), read, s.listSecrets)
	rest.Handle(s.rest, rest.Op("secrets-set", http.MethodPut, "/v1/secrets/{secret}", "Keep a secret, in place of an earlier one of that name"), write, s.setSecret)
	rest.Handle(s.rest, rest.Op("secrets-delete", http.MethodDelete, "/v1/secrets/{secret}", "Delete a secret"), write, s.deleteSecret)
}

func (s *Server) listSecrets(ctx context.Context, _ *struct{}) (*rest.Listed[SecretResource], error) {
	list, err := s.cfg.Secrets.List(ctx, rest.Account(ctx))
	if err != nil {
		return nil, err
	}
	data := make([]SecretResource, len(list))
	for i, l := range list {
		data[i] = SecretResource{Name: l.Name, From: l.From}
		if !l.Set.IsZero() {
			at := l.Set.UTC()
			data[i].UpdatedAt = &at
		}
	}
	return rest.PageOf(ctx, s.rest, "", "", data), nil
}

// A SecretPath names a secret.
type SecretPath struct {
	Secret string `path:"secret" maxLength:"64" doc:"Up to 64 letters, digits, underscores and dashes."`
}

// check refuses what cannot be a name, without repeating it: it may be the value.
func (p *SecretPath) check() error {
	if secrets.CheckName(p.Secret) != nil {
		return fault.New(fault.RequestInvalid, "the name of a secret has up to 64 letters, digits, underscores and dashes")
	}
	return nil
}

type setSecretIn struct {
	SecretPath
	Body struct {
		Value string `json:"value" minLength:"1" maxLength:"8192" writeOnly:"true" doc:"6 to 8,192 bytes. It is sealed, and nothing answers it."`
	}
}

func (s *Server) setSecret(ctx context.Context, in *setSecretIn) (*struct{ Body SecretResource }, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	vault, err := s.vault()
	if err != nil {
		return nil, err
	}
	if err := vault.Set(ctx, rest.Account(ctx), in.Secret, in.Body.Value); err != nil {
		if fault.CodeOf(err) == fault.SecretInvalid { // of a request, not of a step
			err = fault.New(fault.RequestInvalid, "value: %s", strings.TrimPrefix(fault.Message(err), "the value of "))
		}
		return nil, err
	}
	now := s.cfg.Now().UTC()
	return &struct{ Body SecretResource }{SecretResource{Name: in.Secret, From: "vault", UpdatedAt: &now}}, nil
}

func (s *Server) deleteSecret(ctx context.Context, in *SecretPath) (*struct{}, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	vault, err := s.vault()
	if err != nil {
		return nil, err
	}
	err = vault.Delete(ctx, rest.Account(ctx), in.Secret)
	if fault.CodeOf(err) == fault.SecretNotFound {
		e := fault.New(fault.RecordNotFound, "the account keeps no secret of that name")
		e.Remedy = "`GET /v1/secrets` lists those that it keeps."
		err = e
	}
	return nil, err
}

func (s *Server) vault() (*secrets.Vault, error) {
	if v := s.cfg.Secrets.Vault(); v != nil {
		return v, nil
	}
	return nil, fault.New(fault.NotAvailable, "this server keeps no secrets: its program has a source of its own")
}
